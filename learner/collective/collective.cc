#include "learner/collective/collective.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "learner/device/host.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

torch::Tensor Bytes(std::string* text) {
  return torch::from_blob(text->data(), {static_cast<int64_t>(text->size())},
                          torch::kUInt8);
}

}  // namespace

absl::Status Collective::AllReduceSumByParts(torch::Tensor tensor,
                                             const Summed& summed) {
  RETURN_IF_ERROR(AllReduceSum(tensor));
  const int64_t size = tensor.numel();
  for (int64_t at = 0; at < size; at += kSummedPart) {
    summed(at, std::min(kSummedPart, size - at));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Collective::GatherBytes(
    std::string mine, int root) {
  const torch::Tensor sizes = torch::zeros({world_size()}, torch::kInt64);
  int64_t* const size = Host<int64_t>(sizes);
  size[rank()] = static_cast<int64_t>(mine.size());
  RETURN_IF_ERROR(AllReduceSum(sizes));
  int64_t all = 0;
  for (int r = 0; r < world_size(); ++r) {
    if (size[r] < 0 || size[r] > kMostGatheredBytes - all) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "gather: rank ", r, " has ", size[r], " bytes, and those before it ",
          all, "; all together may have ", kMostGatheredBytes));
    }
    all += size[r];
  }
  std::vector<std::string> gathered(world_size());
  for (int r = 0; r < world_size(); ++r) {
    std::string theirs =
        r == rank() ? std::move(mine) : std::string(size[r], 0);
    if (r != root && size[r] > 0) RETURN_IF_ERROR(Broadcast(Bytes(&theirs), r));
    if (rank() == root) gathered[r] = std::move(theirs);
  }
  if (rank() != root) gathered.clear();
  return gathered;
}

absl::Status AllReduceGradients(torch::Tensor gradients, v1::GradientType type,
                                Collective* collective) {
  if (type == v1::GRADIENT_FLOAT32) return collective->AllReduceSum(gradients);
  const torch::Tensor message = gradients.to(torch::kBFloat16);
  RETURN_IF_ERROR(collective->AllReduceSum(message));
  gradients.copy_(message);
  return absl::OkStatus();
}

int64_t GradientBytes(int64_t count, v1::GradientType type) {
  return count * (type == v1::GRADIENT_FLOAT32 ? 4 : 2);
}

}  // namespace flotilla
