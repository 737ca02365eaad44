#include "kernels/cpu/kv_block.h"

#include "kernels/cpu/encodings/encoding.h"

namespace cohort::kernels::cpu {
namespace {

const EncodingKind& kind_of(const KvEncoding& encoding) {
  static const EncodingKind* const kKinds[] = {&kDenseEncoding, &kAffineEncoding, &kTurboEncoding};
  return *kKinds[static_cast<size_t>(encoding.kind)];
}

}  // namespace

std::string words(const KvEncoding& encoding) {
  return kind_of(encoding).name(encoding);
}

void finish_output(const KvEncoding& encoding, int head_dim, float* out) {
  const auto finish = kind_of(encoding).finish;
  if (finish != nullptr) finish(head_dim, out);
}

std::string refusal(const KvEncoding& encoding, int head_dim) {
  return kind_of(encoding).refusal(encoding, head_dim);
}

void store_kv(const KvGeometry& g, std::byte* block, int kv_head, int slot, const float* key,
              const float* value) {
  kind_of(g.encoding).store(g, block + kv_head * g.head_bytes(), slot, key, value);
}

void load_kv(const KvGeometry& g, const std::byte* block, int kv_head, int slot, float* key,
             float* value) {
  kind_of(g.encoding).load(g, block + kv_head * g.head_bytes(), slot, key, value);
}

}  // namespace cohort::kernels::cpu
