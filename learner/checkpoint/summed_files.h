#ifndef FLOTILLA_LEARNER_CHECKPOINT_SUMMED_FILES_H_
#define FLOTILLA_LEARNER_CHECKPOINT_SUMMED_FILES_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "learner/checkpoint/safetensors.h"

namespace flotilla {

inline constexpr char kSums[] = "SHA256SUMS";

// A new folder of files and, written last, SHA256SUMS of them, for
// `sha256sum -c`. All of it is on the disk once Finish returns.
//
// Not thread-safe.
class SummedFolder {
 public:
  // Errors, as of all below: see DurableFile.
  static absl::StatusOr<SummedFolder> Make(const std::string& path);

  absl::Status WriteTensors(const std::string& name, const TensorMap& tensors);
  absl::Status WriteText(const std::string& name, const std::string& text);
  absl::Status Finish();

 private:
  explicit SummedFolder(std::string path) : path_(std::move(path)) {}
  absl::StatusOr<std::string> Write(
      const std::string& name,
      const std::function<absl::Status(const ByteSink&)>& produce) const;

  std::string path_;
  std::string sums_;
};

// Reads such a folder, each file against its sum. In errors a file is `what`
// ("checkpoint file"), and `remedy` says what to do ("; use another").
class SummedReader {
 public:
  // Errors: kDataLoss if there are no sums.
  static absl::StatusOr<SummedReader> Open(const std::string& folder,
                                           const std::string& what,
                                           const std::string& remedy);

  // Errors, as below: kDataLoss, naming the file, if it is not what was written.
  absl::StatusOr<std::shared_ptr<std::string>> Read(
      const std::string& name) const;
  absl::StatusOr<TensorMap> ReadTensors(const std::string& name) const;

  // That `name` is damaged, and `how`.
  absl::Status Damaged(const std::string& name, const std::string& how) const;
  std::string PathOf(const std::string& name) const;

 private:
  SummedReader(std::string folder, std::string what, std::string remedy)
      : folder_(std::move(folder)),
        what_(std::move(what)),
        remedy_(std::move(remedy)) {}

  std::string folder_, what_, remedy_;
  std::map<std::string, std::string> sums_;  // by file name
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_CHECKPOINT_SUMMED_FILES_H_
