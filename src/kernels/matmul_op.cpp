#include "kernels/cpu_node.h"
#include "kernels/ops.h"

namespace cohort::kernels {

mx::array CpuOps::matmul(const cpu::MatmulStep& step, const mx::array& x,
                         const std::optional<mx::array>& residual) {
  const int rows = x.shape(0);
  std::vector<mx::array> inputs{x};
  if (residual) inputs.push_back(*residual);
  return cpu_node("matmul", {rows, step.outputs()}, mx::float32, std::move(inputs),
                  [this, &step, rows](std::span<const void* const> in, void* out) {
                    const auto* add = in.size() > 1 ? static_cast<const float*>(in[1]) : nullptr;
                    cpu::matmul(cpu_, step, static_cast<const float*>(in[0]), add, rows,
                                static_cast<float*>(out));
                  });
}

mx::array PlainOps::matmul(const cpu::MatmulStep& step, const mx::array& x,
                           const std::optional<mx::array>& residual) {
  const mx::array in = step.norm != nullptr ? norm(x, step.norm, step.norm_eps) : x;
  mx::array y = mx::matmul(in, mx::transpose(weights(step.matrices)));
  if (step.bias != nullptr) y = mx::add(y, vector(step.bias, step.matrix_rows()));
  switch (step.epilogue) {
    case cpu::Epilogue::kNone:
      return y;
    case cpu::Epilogue::kGated: {
      const std::vector<mx::array> halves = mx::split(y, 2, -1);
      return mx::multiply(activate(step.activation, halves[0]), halves[1]);
    }
    case cpu::Epilogue::kResidual:
      break;
  }
  return mx::add(*residual, step.post_norm ? norm(y, step.post_norm, step.norm_eps) : y);
}

mx::array PlainOps::weights(const std::vector<const cpu::PackedMatrix*>& matrices) {
  std::vector<const void*> key;
  for (const cpu::PackedMatrix* matrix : matrices) key.push_back(matrix->data);
  if (const auto known = constants_.find(key); known != constants_.end()) return known->second;
  std::vector<mx::array> parts;
  for (const cpu::PackedMatrix* m : matrices) {
    std::vector<float> values(static_cast<size_t>(m->rows) * m->cols);
    cpu_.pool().parallel_for(static_cast<size_t>(m->rows), [&](size_t row) {
      m->unpack_row(static_cast<int>(row), values.data() + row * m->cols);
    });
    parts.push_back(mx::array(values.begin(), {m->rows, m->cols}, mx::float32));
  }
  mx::array all = parts.size() == 1 ? parts[0] : mx::concatenate(parts, 0);
  all.eval();  // so that the parts go
  return constants_.emplace(std::move(key), std::move(all)).first->second;
}

mx::array PlainOps::vector(const float* values, int size) {
  const std::vector<const void*> key{values};
  if (const auto known = constants_.find(key); known != constants_.end()) return known->second;
  return constants_.emplace(key, mx::array(values, {size})).first->second;
}

mx::array PlainOps::norm(const mx::array& x, const float* weight, float eps) {
  return mx::fast::rms_norm(x, vector(weight, x.shape(-1)), eps);
}

mx::array PlainOps::activate(cpu::Activation activation, const mx::array& x) {
  if (activation == cpu::Activation::kSilu) return mx::multiply(x, mx::sigmoid(x));
  const mx::array cube = mx::multiply(mx::multiply(x, x), x);
  const mx::array inner = mx::add(x, mx::multiply(mx::array(0.044715f), cube));
  const mx::array t = mx::tanh(mx::multiply(mx::array(0.797884561f), inner));
  return mx::multiply(mx::multiply(mx::array(0.5f), x), mx::add(mx::array(1.0f), t));
}

}  // namespace cohort::kernels
