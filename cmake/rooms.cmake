# The rooms in the order that data flows; each sees only rooms above it (tools/tidy.py checks it).
# Libraries above COHORT_MLX are free of MLX headers and build in every preset.
cohort_room(base SOURCES base/*.cpp DEPENDS fmt::fmt OpenSSL::Crypto Threads::Threads)
cohort_room(kernels_cpu SOURCES kernels/cpu/*.cpp DEPENDS cohort_base)
# g++ 12 reports the "undefined" operands inside its own AVX-512 header.
set_source_files_properties(src/kernels/cpu/target_avx512.cpp PROPERTIES
  COMPILE_OPTIONS "-Wno-maybe-uninitialized;-Wno-uninitialized")

if(COHORT_MLX)
  cohort_room(kernels SOURCES kernels/*.cpp DEPENDS cohort_kernels_cpu mlx)
endif()
