#pragma once

#include <mlx/mlx.h>

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/settings.h"
#include "kernels/cpu/decoder_layer.h"

namespace cohort::kernels {

namespace mx = mlx::core;

/// A layer, what it attends to, and which of the tables of cos and sin it takes.
struct LayerRun {
  const cpu::DecoderLayer* layer;
  std::vector<cpu::AttentionRow> rows;
  size_t table;
};

/// The nodes of a forward on one device. All arrays are f32. Steps, tables and what they point to
/// are borrowed and outlive both the evaluation and this object.
///   thread  the one that calls MLX
class Ops {
 public:
  virtual ~Ops() = default;

  /// See cpu/matmul.h.
  ///   x [tokens, cols], residual [tokens, outputs] for Epilogue::kResidual
  ///   ->   [tokens, outputs]
  virtual mx::array matmul(const cpu::MatmulStep& step, const mx::array& x,
                           const std::optional<mx::array>& residual) = 0;
  /// See cpu/attention.h. Appends to the rows' blocks when evaluated; evaluating it twice writes
  /// the same bytes twice.
  ///   cos_sin [tokens, rope_dims], qkv [tokens, qkv_columns()]   ->   [tokens, outputs()]
  virtual mx::array attention(const cpu::AttentionStep& step, std::vector<cpu::AttentionRow> rows,
                              const mx::array& cos_sin, const mx::array& qkv) = 0;
  /// Layers one after the other; see cpu/decoder_layer.h.
  ///   x [tokens, hidden], tables of cos and sin [tokens, rope_dims]   ->   [tokens, hidden]
  virtual mx::array layers(std::vector<LayerRun> runs, const mx::array& x,
                           const std::vector<mx::array>& tables);
  /// Rows `ids` of the table, times `scale`.   ->   [ids, cols]
  virtual mx::array embed(const cpu::PackedMatrix& table, std::vector<int32_t> ids,
                          float scale) = 0;
  /// Rows `indices` of x.   [tokens, cols]   ->   [indices, cols]
  virtual mx::array select_rows(const mx::array& x, std::vector<int32_t> indices) = 0;
  /// How the blocks that attention appends to are copied; empty = as memory of this process.
  virtual cpu::BlockCopy block_copy() { return {}; }
};

/// Each is one MLX node that runs our kernels, a run of layers, too: a node costs more than a step
/// of one token.
class CpuOps final : public Ops {
 public:
  explicit CpuOps(cpu::Cpu& cpu) : cpu_(cpu) {}

  mx::array matmul(const cpu::MatmulStep& step, const mx::array& x,
                   const std::optional<mx::array>& residual) override;
  mx::array attention(const cpu::AttentionStep& step, std::vector<cpu::AttentionRow> rows,
                      const mx::array& cos_sin, const mx::array& qkv) override;
  mx::array layers(std::vector<LayerRun> runs, const mx::array& x,
                   const std::vector<mx::array>& tables) override;
  mx::array embed(const cpu::PackedMatrix& table, std::vector<int32_t> ids, float scale) override;
  mx::array select_rows(const mx::array& x, std::vector<int32_t> indices) override;

 private:
  cpu::Cpu& cpu_;
};

/// The same in MLX's own ops, in f32: what kernels are held against, and what runs on a device that
/// has none. Weights are unpacked at their first use. Blocks are rows of arrays of its own, one for
/// each size of block, so the rows that it is given come from one kv::KvMemory, are dense and all
/// of one type; what their addresses point to is not touched.
class PlainOps final : public Ops {
 public:
  explicit PlainOps(cpu::Cpu& cpu) : cpu_(cpu) {}

  mx::array matmul(const cpu::MatmulStep& step, const mx::array& x,
                   const std::optional<mx::array>& residual) override;
  mx::array attention(const cpu::AttentionStep& step, std::vector<cpu::AttentionRow> rows,
                      const mx::array& cos_sin, const mx::array& qkv) override;
  mx::array embed(const cpu::PackedMatrix& table, std::vector<int32_t> ids, float scale) override;
  mx::array select_rows(const mx::array& x, std::vector<int32_t> indices) override;
  cpu::BlockCopy block_copy() override;

 private:
  static mx::array as_array(const std::vector<int32_t>& values);
  /// Matrices on top of each other.   ->   [sum of rows, cols]
  mx::array weights(const std::vector<const cpu::PackedMatrix*>& matrices);
  mx::array vector(const float* values, int size);
  mx::array norm(const mx::array& x, const float* weight, float eps);
  mx::array activate(cpu::Activation activation, const mx::array& x);
  mx::array place_heads(const cpu::AttentionStep& step, const mx::array& x, const float* weight,
                        const mx::array& cos_sin);
  /// The array of the blocks of `geometry`, with room for all blocks of `rows`.
  mx::array& pool(const cpu::KvGeometry& geometry, const std::vector<cpu::AttentionRow>& rows);
  mx::array attend(const cpu::AttentionStep& step, const cpu::AttentionRow& row,
                   const mx::array& queries, const mx::array& pool);

  cpu::Cpu& cpu_;
  std::map<std::vector<const void*>, mx::array> constants_;  // by where their values are
  std::map<size_t, mx::array> pools_;  // by bytes of a block: [slots, elements of a token]
};

/// Those of a device.
std::unique_ptr<Ops> make_ops(Device device, cpu::Cpu& cpu);

}  // namespace cohort::kernels
