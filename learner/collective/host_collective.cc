#include "learner/collective/host_collective.h"

#include "absl/strings/str_cat.h"
#include "learner/device/transfer.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

absl::Status CheckContiguous(const torch::Tensor& tensor) {
  if (tensor.is_contiguous()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("collective: a tensor of shape ", c10::str(tensor.sizes()),
                   " is not contiguous"));
}

absl::Status CheckDtype(const torch::Tensor& tensor) {
  const auto dtype = tensor.scalar_type();
  if (dtype == torch::kFloat32 || dtype == torch::kFloat64 ||
      dtype == torch::kInt64 || dtype == torch::kBFloat16) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("all-reduce: a tensor is ", c10::toString(dtype),
                   "; only float32, float64, int64 and bfloat16 are summed"));
}

// Calls `work` with `flat`'s elements in host memory and puts what it made of
// them back.
template <typename Work>
absl::Status OnHost(torch::Tensor flat, Work work) {
  if (flat.is_cpu()) return work(flat);
  torch::Tensor host = ToHost(flat);
  RETURN_IF_ERROR(work(host));
  flat.copy_(host, /*non_blocking=*/true);
  return absl::OkStatus();
}

}  // namespace

absl::Status HostCollective::AllReduceSum(torch::Tensor tensor) {
  RETURN_IF_ERROR(CheckContiguous(tensor));
  RETURN_IF_ERROR(CheckDtype(tensor));
  torch::NoGradGuard no_grad;
  return OnHost(tensor.dim() == 1 ? tensor : tensor.view(-1),
                [&](torch::Tensor flat) { return SumOnHost(std::move(flat)); });
}

absl::Status HostCollective::Broadcast(torch::Tensor tensor, int root) {
  RETURN_IF_ERROR(CheckContiguous(tensor));
  if (root < 0 || root >= world_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "broadcast from rank ", root, " in a world of ", world_size()));
  }
  torch::NoGradGuard no_grad;
  return OnHost(tensor.view(-1).view(torch::kUInt8), [&](torch::Tensor bytes) {
    return BroadcastOnHost(std::move(bytes), root);
  });
}

}  // namespace flotilla
