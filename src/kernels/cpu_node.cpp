#include "kernels/cpu_node.h"

#include <mlx/allocator.h>
#include <mlx/backend/cpu/encoder.h>
#include <mlx/primitives.h>

#include <memory>
#include <stdexcept>
#include <utility>

namespace cohort::kernels {
namespace {

class CpuNode : public mx::UnaryPrimitive {
 public:
  CpuNode(mx::Stream stream, const char* name, CpuBody body)
      : UnaryPrimitive(stream), name_(name), body_(std::make_shared<CpuBody>(std::move(body))) {}

  const char* name() const override { return name_; }

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    out.set_data(mx::allocator::malloc(out.nbytes()));
    std::vector<const void*> pointers;
    mx::cpu::CommandEncoder& encoder = mx::cpu::get_command_encoder(stream());
    for (const mx::array& input : inputs) {
      encoder.set_input_array(input);
      pointers.push_back(input.data<void>());
    }
    encoder.set_output_array(out);
    encoder.dispatch([body = body_, pointers = std::move(pointers), to = out.data<void>()] {
      (*body)(pointers, to);
    });
  }

  void eval_gpu(const std::vector<mx::array>&, mx::array&) override {
    throw std::runtime_error(std::string("[") + name_ + "] has no GPU kernel");
  }

 private:
  const char* name_;
  std::shared_ptr<CpuBody> body_;  // shared with the dispatched task
};

}  // namespace

mx::array cpu_node(const char* name, mx::Shape shape, mx::Dtype dtype,
                   std::vector<mx::array> inputs, CpuBody body) {
  for (mx::array& input : inputs) {
    const bool ready = input.is_available() && input.flags().row_contiguous;
    if (!ready) input = mx::contiguous(input);
  }
  const mx::Stream stream = mx::default_stream(mx::Device::cpu);
  return mx::array(std::move(shape), dtype,
                   std::make_shared<CpuNode>(stream, name, std::move(body)), std::move(inputs));
}

}  // namespace cohort::kernels
