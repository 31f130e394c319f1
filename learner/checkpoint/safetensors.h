#ifndef FLOTILLA_LEARNER_CHECKPOINT_SAFETENSORS_H_
#define FLOTILLA_LEARNER_CHECKPOINT_SAFETENSORS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "learner/torch.h"

namespace flotilla {

using TensorMap = std::map<std::string, torch::Tensor>;

// The safetensors format, which Python reads with
// `safetensors.torch.load_file(path)`:
//
//   8 bytes: H, little-endian | H bytes: JSON | data, tensor after tensor
//
// JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}.

// Takes the next bytes of a file.
using ByteSink = std::function<absl::Status(const void* data, size_t size)>;

// Writes `tensors`, of any device and layout, in the order of their names.
// Errors: kInvalidArgument, naming the tensor, for a dtype the format has no
// word for; what `sink` returns.
absl::Status WriteSafetensors(const TensorMap& tensors, const ByteSink& sink);

// The tensors in `file`, a whole file's bytes, in host memory; they share it.
// Errors: kDataLoss, saying what is wrong, if it is not in the format: tensors
// that overlap or leave bytes between them are not.
absl::StatusOr<TensorMap> ReadSafetensors(std::shared_ptr<std::string> file);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_CHECKPOINT_SAFETENSORS_H_
