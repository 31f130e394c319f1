#ifndef FLOTILLA_LEARNER_CHECKPOINT_CHECKPOINT_H_
#define FLOTILLA_LEARNER_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "learner/checkpoint/safetensors.h"
#include "learner/torch.h"

namespace flotilla {

// A run's state at one update: all that training goes on from.
//
//   checkpoints/step_000000000512/   N = global_step
//     weights.safetensors    the policy; names as learner/nn documents them
//     state.safetensors      optimizer moments, normalizers, generators
//     progress.json          counters: one flat object of numbers and strings
//     config.textproto       the resolved configuration
//     best_alone             if it was saved for being the best, and not due
//     SHA256SUMS             of the above, for `sha256sum -c`
//   checkpoints/latest, best -> step_... (until the first: the one that the run goes
//                                        on from, which may be resumed_from)
//
// In Python: safetensors.torch.load_file(".../latest/weights.safetensors").
struct CheckpointData {
  TensorMap weights;
  TensorMap state;
  std::map<std::string, std::string> progress;  // "global_step" is required
  v1::RunConfig config;
};

// Reads the checkpoint in folder `path`, which may be a link such as `latest`.
// Tensors are in host memory, the same bits that were saved.
// Errors: kNotFound; kDataLoss, naming the file, if anything in it is not what
// was written, and the tensor, if one overlaps another or is not finite.
absl::StatusOr<CheckpointData> LoadCheckpoint(const std::string& path);

// Its progress alone.
absl::StatusOr<std::map<std::string, std::string>> LoadCheckpointProgress(
    const std::string& path);

// As above, for a run of `config`.
// Errors also: kFailedPrecondition, naming both, if the checkpoint is of
// another environment or algorithm.
absl::StatusOr<CheckpointData> LoadCheckpoint(const std::string& path,
                                              const v1::RunConfig& config);

// Hex sha256 over the bytes of `tensors`, one after the other.
std::string ParametersSha256(const std::vector<torch::Tensor>& tensors);

// The checkpoints of one run. One that is there is whole: it is written aside
// in the same folder, synced, and renamed; `latest` and `best` are links that
// are replaced in the same way. Whatever is killed when, and whatever is full,
// those that were there before still are.
//
// Not thread-safe; one process writes at a time.
class CheckpointStore {
 public:
  // Lets two folders change places, at once. False where a file system cannot.
  using Exchange = bool (*)(const std::string& one, const std::string& other);
  static bool ExchangeFolders(const std::string& one, const std::string& other);

  // In `folder`, made when needed, its parent not. Keeps the newest `keep` (at
  // least 1) that were due, and always those that `latest` and `best` name.
  // `exchange`: for tests.
  CheckpointStore(std::string folder, int keep,
                  Exchange exchange = ExchangeFolders);

  // Of a run that stands at `global_step`: `latest` is not led back to what is
  // older than that and than what it names.
  void GoOnAt(int64_t global_step);

  // Keeps so many from the next Save on.
  void set_keep(int keep) { keep_ = keep; }

  // Writes `data`, replacing a checkpoint of the same step, and points `latest`
  // at it unless this store has saved a later step or goes on from one. Blocks until it is on the
  // disk. Removes old checkpoints and what crashed saves left behind.
  // Errors: kResourceExhausted, naming path and cause, if the disk is full;
  // kInvalidArgument without a global_step or for a tensor of an exotic dtype;
  // kInternal, naming it, for a tensor that holds a NaN or an infinity.
  absl::Status Save(const CheckpointData& data);

  // The same of one that is the best so far, and not due: points `best` at it, and
  // does not keep it for longer than a link names it. Where one of the same step
  // was due, it takes that one's place among them.
  absl::Status SaveBest(const CheckpointData& data);

  // Points `best` at the checkpoint of `global_step`. Errors: kNotFound.
  absl::Status MarkBest(int64_t global_step);

 private:
  absl::Status Put(const CheckpointData& data, bool best);
  absl::Status WriteFiles(const CheckpointData& data, bool best_alone,
                          const std::string& folder) const;
  // Puts the finished folder `aside` in the place of `name`.
  absl::Status Install(const std::string& aside, const std::string& name);
  absl::Status Replace(const std::string& aside, const std::string& name);
  // What `latest` and `best` lead to, by its name.
  std::set<std::string> Named() const;
  void Remove(const std::string& name);
  void RemoveOld();
  void RemoveLeftovers();
  std::string Aside(const std::string& name) const;

  const std::string folder_;
  const Exchange exchange_;
  int keep_;
  int64_t last_step_ = -1;  // that `latest` is not led back from
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_CHECKPOINT_CHECKPOINT_H_
