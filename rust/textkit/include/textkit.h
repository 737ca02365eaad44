#pragma once

// The C ABI of rust/textkit: Hugging Face `tokenizers` and `minijinja` for src/text. Written by
// hand; the other half of each layout is in src/abi.rs and src/lib.rs.
//
// Statuses: 0 = done; otherwise `*error` holds a message that the caller frees, and nothing else
// was written. No panic and no exception crosses. Handles are immutable: any thread. Strings are
// (data, size), not terminated; borrowed ones need to live only for the call.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  TK_INVALID = 1,      // the caller's input is wrong
  TK_KWARGS = 2,       // the extra template variables are wrong
  TK_UNSUPPORTED = 3,  // understood, but not provided here
  TK_INTERNAL = 4,     // a library panicked
};

typedef struct TkTokenizer TkTokenizer;
typedef struct TkTemplate TkTemplate;

typedef struct TkStr {
  const char* data;
  size_t size;
} TkStr;

// Owned by the caller: give back with tk_text_free or tk_ids_free. All zero is empty.
typedef struct TkText {
  char* data;
  size_t size;
  size_t capacity;
} TkText;

typedef struct TkIds {
  int32_t* data;
  size_t size;
  size_t capacity;
} TkIds;

void tk_text_free(TkText text);
void tk_ids_free(TkIds ids);

// From the bytes of a tokenizer.json.
int32_t tk_tokenizer_from_json(TkStr json, TkTokenizer** out, TkText* error);

// The `tokenizer.ggml.*` arrays of a GGUF file. Absent arrays have size 0.
typedef struct TkGgufArrays {
  TkStr model, pre;
  const TkStr* tokens;
  const float* scores;
  const int32_t* token_types;
  const TkStr* merges;
  size_t num_tokens, num_scores, num_token_types, num_merges;
  int32_t unknown_id;  // -1 = absent
  bool add_space_prefix;
} TkGgufArrays;

int32_t tk_tokenizer_from_gguf(const TkGgufArrays* arrays, TkTokenizer** out, TkText* error);
void tk_tokenizer_free(TkTokenizer* tokenizer);

// Adds no BOS or EOS. `text` must be UTF-8.
int32_t tk_tokenizer_encode(const TkTokenizer* tokenizer, TkStr text, bool parse_special,
                            TkIds* out, TkText* error);
// -1 when there is no such token.
int32_t tk_tokenizer_token_to_id(const TkTokenizer* tokenizer, TkStr token);
// What the post-processor of a tokenizer.json puts before a text; the caller frees it.
TkIds tk_tokenizer_leading_ids(const TkTokenizer* tokenizer);

// What each id stands for as bytes: id i is bytes[offsets[i], offsets[i + 1]). Borrowed from the
// tokenizer. A text drops up to `leading_spaces` spaces at its very start.
typedef struct TkPieceTable {
  const char* bytes;
  const uint32_t* offsets;  // num_ids + 1
  const uint8_t* special;   // num_ids; 1 = control token
  uint32_t num_ids;
  uint32_t leading_spaces;
} TkPieceTable;

TkPieceTable tk_tokenizer_pieces(const TkTokenizer* tokenizer);

// A chat becomes ids in three steps. Only the middle one runs what came with a model, so only it
// needs a process that may crash: tk_chat_prepare, tk_template_render, tk_chat_finish.

typedef struct TkChatInputs {
  TkStr source;  // of the template; must be UTF-8, as must the two tokens
  TkStr bos_token, eos_token;
  TkStr messages;  // JSON array
  TkStr tools;     // JSON array; empty = none
  TkStr kwargs;    // JSON object of extra variables; empty = none
  bool add_generation_prompt;
} TkChatInputs;

// Code points around special-token strings that the caller typed; both 0 = there are none.
typedef struct TkMarks {
  uint32_t open, close;
} TkMarks;

// Writes the variables of the template as one JSON object.
int32_t tk_chat_prepare(const TkTokenizer* tokenizer, const TkChatInputs* inputs, TkText* variables,
                        TkMarks* marks, TkText* error);
// From what the template wrote, the text without marks and its ids.
int32_t tk_chat_finish(const TkTokenizer* tokenizer, TkStr written, const TkMarks* marks,
                       TkText* text, TkIds* ids, TkText* error);

// Fuel, output and recursion are bounded; the stack and the time are not.
int32_t tk_template_new(TkStr source, TkTemplate** out, TkText* error);
int32_t tk_template_render(const TkTemplate* tk_template, TkStr variables, TkText* text,
                           TkText* error);

#ifdef __cplusplus
}
#endif
