#pragma once

#include "kernels/cpu/encodings/encoding.h"
#include "kv/codecs/codec.h"

namespace cohort::kv {

/// One tensor [kv_heads, tokens, columns] of a portable cache, and how a row of it lies in a block.
struct Plane {
  std::string_view name;
  SavedType type;
  int64_t columns;
  /// Copies the row of one token from and to a kv head of a block. Rows are not aligned.
  void (*save)(const kernels::cpu::KvGeometry& geometry, const std::byte* head, int slot,
               std::byte* row);
  void (*load)(const kernels::cpu::KvGeometry& geometry, std::byte* head, int slot,
               const std::byte* row);
};

/// Attention caches as plain tensors of the tokens that they hold, in the order of positions.
class PlaneCodec final : public CacheCodec {
 public:
  using PlanesOf = std::vector<Plane> (*)(const kernels::cpu::KvGeometry& geometry);
  explicit PlaneCodec(PlanesOf planes) : planes_(planes) {}
  void describe(const LayerCache& cache, CacheState state, CacheLayout& layout) const override;
  void write(const LayerCache& cache, size_t index, const Sink& sink) const override;
  void read(LayerCache& cache, size_t index, const Source& source) const override;

 private:
  PlanesOf planes_;
};

/// An array of scales as a plane [kv_heads, tokens, head_dim / group].
template <kernels::cpu::KvScales array>
Plane scales_plane(std::string_view name, SavedType type,
                   const kernels::cpu::KvGeometry& geometry) {
  using kernels::cpu::KvGeometry;
  const auto save = [](const KvGeometry& g, const std::byte* head, int slot, std::byte* row) {
    for (int i = 0; i < g.groups(); ++i)
      std::memcpy(row + 2 * i, scale_at(g, head, array, i, slot), 2);
  };
  const auto load = [](const KvGeometry& g, std::byte* head, int slot, const std::byte* row) {
    for (int i = 0; i < g.groups(); ++i)
      std::memcpy(scale_at(g, head, array, i, slot), row + 2 * i, 2);
  };
  return {name, type, geometry.groups(), save, load};
}

/// The codes of a token's key as one little-endian bit stream along head_dim.
void save_key_codes(const kernels::cpu::KvGeometry& geometry, const std::byte* head, int slot,
                    std::byte* row);
void load_key_codes(const kernels::cpu::KvGeometry& geometry, std::byte* head, int slot,
                    const std::byte* row);
/// The same of a token's value.
void save_value_codes(const kernels::cpu::KvGeometry& geometry, const std::byte* head, int slot,
                      std::byte* row);
void load_value_codes(const kernels::cpu::KvGeometry& geometry, std::byte* head, int slot,
                      const std::byte* row);

}  // namespace cohort::kv
