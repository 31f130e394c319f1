#include "learner/library/data_parallel.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"

namespace flotilla {

absl::StatusOr<DataParallel> DataParallel::Wrap(torch::nn::Module* module,
                                                Collective* collective) {
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> trained;
  for (const auto& parameter : module->named_parameters()) {
    const torch::Tensor& tensor = parameter.value();
    if (!tensor.requires_grad()) continue;
    if (tensor.scalar_type() != torch::kFloat32 ||
        (!trained.empty() && tensor.device() != trained.front().device())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter ", parameter.key(), " is ",
          c10::toString(tensor.scalar_type()), " on ", tensor.device().str(),
          "; want float32, all on one device"));
    }
    trained.push_back(tensor);
  }
  if (trained.empty()) {
    return absl::InvalidArgumentError("the module has no parameter to train");
  }
  std::vector<torch::Tensor> state = module->parameters();
  for (const torch::Tensor& buffer : module->buffers()) state.push_back(buffer);
  for (torch::Tensor& tensor : state) {
    const torch::Tensor copy =
        tensor.to(tensor.is_floating_point() ? torch::kFloat32 : torch::kInt64)
            .contiguous();
    RETURN_IF_ERROR(collective->Broadcast(copy, /*root=*/0));
    tensor.copy_(copy);
  }
  return DataParallel(std::move(trained), collective);
}

DataParallel::DataParallel(std::vector<torch::Tensor> parameters,
                           Collective* collective)
    : parameters_(std::move(parameters)), collective_(collective) {
  int64_t total = 1;
  for (const torch::Tensor& parameter : parameters_) {
    total += parameter.numel();
  }
  message_ = torch::zeros({total}, parameters_.front().options());
}

absl::Status DataParallel::AverageGradients(double samples) {
  torch::NoGradGuard no_grad;
  const auto slice = [&, at = int64_t{0}](const torch::Tensor& t) mutable {
    at += t.numel();
    return message_.narrow(0, at - t.numel(), t.numel()).view(t.sizes());
  };
  message_.zero_();
  if (samples > 0) {
    auto next = slice;
    for (const torch::Tensor& parameter : parameters_) {
      torch::Tensor place = next(parameter);
      if (parameter.grad().defined()) place.copy_(parameter.grad());
    }
    message_.mul_(samples);
  }
  torch::Tensor total = message_.narrow(0, message_.numel() - 1, 1);
  total.fill_(samples);

  const auto began = std::chrono::steady_clock::now();
  RETURN_IF_ERROR(collective_->AllReduceSum(message_));
  const double all = total.item<float>();  // waits for a GPU
  traffic_.seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began)
          .count();
  traffic_.bytes += message_.numel() * message_.element_size();
  ++traffic_.calls;

  if (all > 0) message_.div_(all);
  auto next = slice;
  for (torch::Tensor& parameter : parameters_) {
    torch::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) gradient = torch::zeros_like(parameter);
    gradient.copy_(next(parameter));
  }
  return absl::OkStatus();
}

}  // namespace flotilla
