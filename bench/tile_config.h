#pragma once

// Put before llama.cpp's sources: of the configuration that _tile_loadconfig is given, GCC 12
// thinks that only the first eight bytes are read and drops the stores of the others, so that AMX
// code ends with SIGILL.

#if defined(__AMX_TILE__)
#include <immintrin.h>
#define _tile_loadconfig(config) \
  __asm__ volatile("ldtilecfg %0" : : "m"(*(const char(*)[64])(config)))
#endif
