#include "tests/rehearsal/fallback.h"

#include <ATen/ops/copy_native.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "tests/rehearsal/allocators.h"
#include "tests/rehearsal/counters.h"
#include "tests/rehearsal/generator.h"
#include "tests/rehearsal/graph.h"
#include "tests/rehearsal/no_host_wait.h"
#include "tests/rehearsal/shadow_tensors.h"
#include "tests/rehearsal/stream_order.h"

namespace flotilla::rehearsal {
namespace {

bool ReturnsView(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    const c10::AliasInfo* const alias = result.alias_info();
    if (alias != nullptr && !alias->isWrite()) return true;
  }
  return false;
}

// A result whose size, or whose value on the host, depends on the values.
bool WaitsForValues(const std::string& name) {
  static const auto* const names = new absl::flat_hash_set<std::string>{
      "aten::bincount",      "aten::equal",
      "aten::masked_select", "aten::nonzero",
      "aten::unique_dim",    "aten::unique_consecutive",
      "aten::_unique2",      "aten::unique_dim_consecutive",
      "aten::_unique",       "aten::repeat_interleave"};
  return names->contains(name);
}

bool MayBeGenerator(const c10::Argument& argument) {
  static const c10::TypePtr type =
      c10::OptionalType::create(c10::GeneratorType::get());
  return *argument.type() == *type;
}

void Collect(const c10::IValue& value, std::vector<at::Tensor>* tensors) {
  if (value.isTensor()) {
    tensors->push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& t : value.toTensorVector()) tensors->push_back(t);
  } else if (value.isOptionalTensorList()) {
    for (const auto& t : value.toOptionalTensorVector()) {
      if (t) tensors->push_back(*t);
    }
  }
}

// The arguments of one call as the CPU's kernel takes them.
class Arguments {
 public:
  Arguments(const std::string& op, ShadowTensors* tensors)
      : op_(op), tensors_(*tensors) {}

  void ToShadow(const c10::Argument& argument, c10::IValue* value) {
    if (value->isTensor()) {
      *value = Take(value->toTensor());
    } else if (value->isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value->toTensorVector()) {
        list.push_back(Take(tensor));
      }
      *value = std::move(list);
    } else if (value->isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const auto& index : value->toOptionalTensorVector()) {
        list.push_back(index ? std::optional(TakeIndex(*index)) : std::nullopt);
      }
      *value = std::move(list);
    } else if (value->isDevice()) {
      *value = c10::Device(c10::kCPU);
    } else if (value->isGenerator()) {
      TORCH_CHECK(value->toGenerator().device().is_privateuseone(), op_,
                  ": the generator is on ", value->toGenerator().device());
      *value = CpuGenerator(value->toGenerator());
    } else if (value->isNone() && MayBeGenerator(argument)) {
      *value = CpuGenerator(DefaultGenerator());
    }
  }

  void CheckDevices() const {
    TORCH_CHECK(!on_host_.defined() || !tensors_.has_device(), op_,
                ": a tensor ", on_host_.sizes(), " is on ", on_host_.device(),
                " and others are on the rehearsal device");
  }

 private:
  at::Tensor Take(const at::Tensor& tensor) {
    // A number of the host travels with the launch.
    if (tensor.defined() && !tensor.is_privateuseone() && tensor.dim() > 0) {
      on_host_ = tensor;
    }
    return tensors_.In(tensor);
  }

  at::Tensor TakeIndex(const at::Tensor& index) {
    if (index.defined() && !index.is_privateuseone()) {
      CountCopy(index.is_pinned() ? &Counts::pinned_to_device
                                  : &Counts::pageable_to_device,
                static_cast<int64_t>(index.nbytes()));
      HostWait(&Counts::blocking_copies, op_ + " with indices on the host");
    }
    if (index.defined() && (index.scalar_type() == at::kBool ||
                            index.scalar_type() == at::kByte)) {
      HostWait(&Counts::dynamic_shapes, op_ + " with a mask");
    }
    return tensors_.In(index);
  }

  const std::string& op_;
  ShadowTensors& tensors_;
  at::Tensor on_host_;
};

}  // namespace

namespace {

void RunOnShadow(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const KernelScope scope;
  const at::AutoDispatchBelowADInplaceOrView below;
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

// With the arguments of a call, to where its results are.
void RunAgain(const c10::OperatorHandle& op, torch::jit::Stack stack,
              const torch::jit::Stack& results) {
  RunOnShadow(op, &stack);
  std::vector<at::Tensor> from, to;
  for (const c10::IValue& value : stack) Collect(value, &from);
  for (const c10::IValue& value : results) Collect(value, &to);
  for (size_t i = 0; i < to.size(); ++i) {
    if (!to[i].defined() || to[i].data_ptr() == from[i].data_ptr()) continue;
    at::native::copy_(to[i], from[i], /*non_blocking=*/false);
  }
}

}  // namespace

void Fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  if (ReturnsView(schema)) {
    Count(&Counts::views);
  } else {
    CountLaunch(schema.name());
  }
  if (WaitsForValues(schema.name())) {
    HostWait(&Counts::dynamic_shapes, schema.name());
  }

  std::vector<at::Tensor> reads, writes;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* const alias = schema.arguments()[i].alias_info();
    Collect((*stack)[stack->size() - schema.arguments().size() + i],
            alias != nullptr && alias->isWrite() ? &writes : &reads);
  }

  ShadowTensors tensors;
  Arguments arguments(schema.name(), &tensors);
  const size_t inputs = schema.arguments().size();
  for (size_t i = 0; i < inputs; ++i) {
    arguments.ToShadow(schema.arguments()[i],
                       &(*stack)[stack->size() - inputs + i]);
  }
  arguments.CheckDevices();
  const bool record = IsCapturing() && !ReturnsView(schema);
  torch::jit::Stack recorded;
  if (record) recorded.assign(stack->end() - inputs, stack->end());
  RunOnShadow(op, stack);
  if (record) {
    std::vector<at::Tensor> touched = reads;
    touched.insert(touched.end(), writes.begin(), writes.end());
    const torch::jit::Stack results(stack->end() - schema.returns().size(),
                                    stack->end());
    Record(schema.name(), touched,
           [op, recorded, results] { RunAgain(op, recorded, results); });
  }
  tensors.AdoptChanges();
  const size_t outputs = schema.returns().size();
  for (size_t i = stack->size() - outputs; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (value.isTensor()) {
      value = tensors.Out(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        list.push_back(tensors.Out(tensor));
      }
      value = std::move(list);
    }
    Collect(value, &writes);
  }
  if (!ReturnsView(schema)) LaunchOn(schema.name(), reads, writes);
}

}  // namespace flotilla::rehearsal
