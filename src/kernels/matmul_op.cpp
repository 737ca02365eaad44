#include "kernels/cpu_node.h"
#include "kernels/ops.h"

namespace cohort::kernels {
namespace {

mx::array norm(const mx::array& x, const float* weight, float eps) {
  const int n = x.shape(-1);
  const mx::array squares = mx::mean(mx::square(x), -1, true);
  return mx::multiply(mx::multiply(x, mx::rsqrt(mx::add(squares, mx::array(eps)))),
                      mx::array(weight, {n}));
}

mx::array activate(cpu::Activation activation, const mx::array& x) {
  if (activation == cpu::Activation::kSilu) return mx::multiply(x, mx::sigmoid(x));
  const mx::array inner =
      mx::add(x, mx::multiply(mx::array(0.044715f), mx::power(x, mx::array(3))));
  const mx::array t = mx::tanh(mx::multiply(mx::array(0.797884561f), inner));
  return mx::multiply(mx::multiply(mx::array(0.5f), x), mx::add(mx::array(1.0f), t));
}

}  // namespace

mx::array matmul(cpu::Cpu& cpu, const cpu::MatmulStep& step, const mx::array& x,
                 const std::optional<mx::array>& residual) {
  const int rows = x.shape(0);
  std::vector<mx::array> inputs{x};
  if (residual) inputs.push_back(*residual);
  return cpu_node("matmul", {rows, step.outputs()}, mx::float32, std::move(inputs),
                  [&cpu, &step, rows](std::span<const void* const> in, void* out) {
                    const auto* add = in.size() > 1 ? static_cast<const float*>(in[1]) : nullptr;
                    cpu::matmul(cpu, step, static_cast<const float*>(in[0]), add, rows,
                                static_cast<float*>(out));
                  });
}

mx::array matmul_reference(const cpu::MatmulStep& step, const mx::array& x,
                           const std::optional<mx::array>& residual) {
  const mx::array in = step.norm != nullptr ? norm(x, step.norm, step.norm_eps) : x;
  std::vector<mx::array> parts;
  for (const cpu::PackedMatrix* m : step.matrices) {
    parts.push_back(mx::matmul(in, mx::transpose(unpack(*m))));
  }
  mx::array y = mx::concatenate(parts, -1);
  if (step.bias != nullptr) y = mx::add(y, mx::array(step.bias, {step.matrix_rows()}));
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

mx::array unpack(const cpu::PackedMatrix& matrix) {
  std::vector<float> values(static_cast<size_t>(matrix.rows) * matrix.cols);
  for (int row = 0; row < matrix.rows; ++row) {
    matrix.unpack_row(row, values.data() + static_cast<ptrdiff_t>(row) * matrix.cols);
  }
  return mx::array(values.begin(), {matrix.rows, matrix.cols}, mx::float32);
}

}  // namespace cohort::kernels
