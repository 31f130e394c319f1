#include "learner/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "learner/checkpoint/durable_file.h"
#include "learner/checkpoint/replay_files.h"
#include "learner/checkpoint/summed_files.h"
#include "learner/device/host.h"
#include "services/base/atomic_file.h"
#include "services/base/config.h"
#include "services/base/json.h"
#include "services/base/sha256.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

constexpr char kWeights[] = "weights.safetensors";
constexpr char kState[] = "state.safetensors";
constexpr char kProgress[] = "progress.json";
constexpr char kConfig[] = "config.textproto";
// Beside them, and of the sums, so that it goes wherever its checkpoint goes.
constexpr char kBestAlone[] = "best_alone";

constexpr char kStepPrefix[] = "step_";
// Of what is not, or no longer, a checkpoint.
constexpr char kAsidePrefix[] = ".aside_";
constexpr char kKept[] = "kept_";  // of what is there by another name, too

std::string NameOfStep(int64_t global_step) {
  return absl::StrFormat("%s%012d", kStepPrefix, global_step);
}

absl::StatusOr<SummedReader> OpenCheckpoint(const std::string& path) {
  std::error_code error;
  // Links are followed once: `latest` may move on meanwhile.
  const fs::path folder = fs::canonical(path, error);
  if (error || !fs::is_directory(folder, error)) {
    return absl::NotFoundError(absl::StrCat(
        "no checkpoint in \"", path,
        "\": name its folder, such as RUN/checkpoints/step_000000000512"));
  }
  return SummedReader::Open(folder.string(), "checkpoint file",
                            "; use another checkpoint of the run");
}

// The first of `tensors` that holds a NaN or an infinity, in words; "" if none.
// Nothing learns from those any more, and they spread.
std::string NotFinite(const TensorMap& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.is_floating_point()) continue;
    const int64_t bad =
        tensor.numel() - torch::isfinite(tensor).sum().item<int64_t>();
    if (bad == 0) continue;
    return absl::StrCat("tensor \"", name, "\" has ", bad, " of ",
                        tensor.numel(),
                        " numbers that are not finite (NaN or infinite)");
  }
  return "";
}

absl::StatusOr<TensorMap> ReadFinite(const SummedReader& reader,
                                     const std::string& name) {
  ASSIGN_OR_RETURN(TensorMap tensors, reader.ReadTensors(name));
  const std::string ruined = NotFinite(tensors);
  if (!ruined.empty()) return reader.Damaged(name, ruined);
  return tensors;
}

absl::StatusOr<std::map<std::string, std::string>> ReadProgress(
    const SummedReader& reader) {
  ASSIGN_OR_RETURN(const auto progress, reader.Read(kProgress));
  auto members = ParseFlatJson(*progress);
  if (!members.ok()) {
    return reader.Damaged(kProgress, std::string(members.status().message()));
  }
  return *std::move(members);
}

absl::Status Mismatch(const std::string& path, const std::string& what,
                      const std::string& saved, const std::string& wanted) {
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint ", path, " is of ", what, " \"", saved,
                   "\", and this run's ", what, " is \"", wanted,
                   "\": resume with the configuration it was made with"));
}

bool IsStep(const fs::path& path) {
  return absl::StartsWith(path.filename().string(), kStepPrefix);
}

// The step that a link leads to, also by its other name; see Replace.
std::string StepNamed(const fs::path& target) {
  const std::string file = target.filename().string();
  absl::string_view name = file;
  if (absl::ConsumePrefix(&name, absl::StrCat(kAsidePrefix, kKept))) {
    name = name.substr(0, name.find('.'));
  }
  return std::string(name);
}

// Names in `folder`; none if it cannot be read.
std::vector<fs::path> ListFolder(const std::string& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    paths.push_back(at->path());
  }
  return paths;
}

absl::StatusOr<CheckpointData> ReadAll(const SummedReader& reader) {
  CheckpointData data;
  ASSIGN_OR_RETURN(data.weights, ReadFinite(reader, kWeights));
  ASSIGN_OR_RETURN(data.state, ReadFinite(reader, kState));
  ASSIGN_OR_RETURN(data.progress, ReadProgress(reader));
  RETURN_IF_ERROR(reader.Read(kConfig).status());
  ASSIGN_OR_RETURN(data.config, LoadRunConfig(reader.PathOf(kConfig), {}));
  return data;
}

// What `read` makes of the checkpoint in `path`. A run that goes on removes what
// `latest` led to when this began: then it is read from where that leads by now.
template <typename Result>
Result Load(const std::string& path, Result (*read)(const SummedReader&)) {
  constexpr int kTries = 10;
  for (int i = 1;; ++i) {
    std::error_code absent;
    const fs::path folder = fs::canonical(path, absent);
    const absl::StatusOr<SummedReader> reader = OpenCheckpoint(path);
    Result result = reader.ok() ? read(*reader) : Result(reader.status());
    if (result.ok() || i == kTries || fs::canonical(path, absent) == folder) {
      return result;
    }
  }
}

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> LoadCheckpointProgress(
    const std::string& path) {
  return Load(path, ReadProgress);
}

absl::StatusOr<CheckpointData> LoadCheckpoint(const std::string& path) {
  return Load(path, ReadAll);
}

absl::StatusOr<CheckpointData> LoadCheckpoint(const std::string& path,
                                              const v1::RunConfig& config) {
  ASSIGN_OR_RETURN(CheckpointData data, LoadCheckpoint(path));
  if (data.config.env().id() != config.env().id()) {
    return Mismatch(path, "environment", data.config.env().id(),
                    config.env().id());
  }
  if (AlgorithmName(data.config) != AlgorithmName(config)) {
    return Mismatch(path, "algorithm", AlgorithmName(data.config),
                    AlgorithmName(config));
  }
  return data;
}

std::string ParametersSha256(const std::vector<torch::Tensor>& tensors) {
  Sha256 sha256;
  for (const torch::Tensor& tensor : tensors) {
    const torch::Tensor host = tensor.detach().to(torch::kCPU).contiguous();
    sha256.Update(HostBytes(host), host.nbytes());
  }
  return sha256.HexDigest();
}

CheckpointStore::CheckpointStore(std::string folder, int keep,
                                 Exchange exchange)
    : folder_(std::move(folder)),
      exchange_(exchange),
      keep_(std::max(keep, 1)) {}

bool CheckpointStore::ExchangeFolders(const std::string& one,
                                      const std::string& other) {
  return ::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(),
                     RENAME_EXCHANGE) == 0;
}

void CheckpointStore::GoOnAt(int64_t global_step) {
  std::error_code absent;
  const std::string latest =
      StepNamed(fs::read_symlink(fs::path(folder_) / "latest", absent));
  absl::string_view digits = latest;
  int64_t step = 0;
  if (absl::ConsumePrefix(&digits, kStepPrefix) &&
      absl::SimpleAtoi(digits, &step)) {
    last_step_ = std::min(step, global_step);
  }
}

std::string CheckpointStore::Aside(const std::string& name) const {
  return absl::StrCat(folder_, "/", kAsidePrefix, name, ".", ::getpid());
}

absl::Status CheckpointStore::Save(const CheckpointData& data) {
  return Put(data, /*best=*/false);
}

absl::Status CheckpointStore::SaveBest(const CheckpointData& data) {
  return Put(data, /*best=*/true);
}

absl::Status CheckpointStore::Put(const CheckpointData& data, bool best) {
  const auto found = data.progress.find("global_step");
  int64_t step = 0;
  if (found == data.progress.end() || !absl::SimpleAtoi(found->second, &step) ||
      step < 0) {
    return absl::InvalidArgumentError(
        "a checkpoint's progress needs a global_step that is a number");
  }
  for (const TensorMap* tensors : {&data.weights, &data.state}) {
    const std::string ruined = NotFinite(*tensors);
    if (!ruined.empty()) return absl::InternalError(ruined);
  }
  // Not its parents: a run's folder that was removed stays so.
  std::error_code error;
  fs::create_directory(folder_, error);
  if (error) {
    errno = error.value();
    return FileError(absl::StrCat("cannot make ", folder_));
  }
  RemoveLeftovers();

  const std::string name = NameOfStep(step);
  const std::string aside = Aside(name);
  const fs::path place = fs::path(folder_) / name;
  // When one that was due was written, which this one replaces.
  std::optional<fs::file_time_type> due_at;
  if (best && fs::exists(place / kSums, error) &&
      !fs::exists(place / kBestAlone, error)) {
    due_at = fs::last_write_time(place / kSums, error);
  }
  absl::Status status =
      WriteFiles(data, /*best_alone=*/best && !due_at.has_value(), aside);
  if (status.ok()) status = Install(aside, name);
  if (!status.ok()) {
    fs::remove_all(aside, error);  // room for others
    return status;
  }
  if (due_at.has_value()) fs::last_write_time(place / kSums, *due_at, error);
  if (step >= last_step_) {
    last_step_ = step;
    RETURN_IF_ERROR(LinkAtomically(folder_ + "/latest", name));
    RemoveLeftovers();
  }
  if (best) RETURN_IF_ERROR(MarkBest(step));
  RemoveOld();
  return absl::OkStatus();
}

absl::Status CheckpointStore::WriteFiles(const CheckpointData& data,
                                         bool best_alone,
                                         const std::string& folder) const {
  ASSIGN_OR_RETURN(SummedFolder files, SummedFolder::Make(folder));
  RETURN_IF_ERROR(files.WriteTensors(kWeights, data.weights));
  RETURN_IF_ERROR(files.WriteTensors(kState, data.state));
  RETURN_IF_ERROR(files.WriteText(kProgress, FormatFlatJson(data.progress)));
  RETURN_IF_ERROR(files.WriteText(kConfig, FormatResolved(data.config)));
  if (best_alone) RETURN_IF_ERROR(files.WriteText(kBestAlone, "\n"));
  return files.Finish();
}

absl::Status CheckpointStore::Install(const std::string& aside,
                                      const std::string& name) {
  const std::string place = absl::StrCat(folder_, "/", name);
  std::error_code error;
  if (!fs::exists(place, error)) {
    if (::rename(aside.c_str(), place.c_str()) != 0) {
      return FileError(absl::StrCat("cannot rename to ", place));
    }
    return SyncFolder(folder_);
  }
  // The same step again. A folder cannot be renamed over another.
  if (!exchange_(aside, place)) RETURN_IF_ERROR(Replace(aside, name));
  RETURN_IF_ERROR(SyncFolder(folder_));
  RemoveLeftovers();  // the old one
  return absl::OkStatus();
}

// NFS and others cannot exchange: for a moment nothing has the name. What leads there
// leads to the same files by another name until something has it again.
absl::Status CheckpointStore::Replace(const std::string& aside,
                                      const std::string& name) {
  const std::string place = absl::StrCat(folder_, "/", name);
  const std::string kept = Aside(absl::StrCat(kKept, name));
  const std::string old = Aside(absl::StrCat("old_", name));
  std::error_code error;
  fs::create_directory(kept, error);
  for (const fs::path& file : ListFolder(place)) {
    if (!error) fs::create_hard_link(file, kept / file.filename(), error);
  }
  const bool can_link = !error;
  std::vector<std::string> leads;
  for (const char* link : {"/latest", "/best"}) {
    if (!can_link || fs::read_symlink(folder_ + link, error) != name) continue;
    leads.push_back(folder_ + link);
    RETURN_IF_ERROR(
        LinkAtomically(leads.back(), fs::path(kept).filename().string()));
  }
  if (::rename(place.c_str(), old.c_str()) != 0 ||
      ::rename(aside.c_str(), place.c_str()) != 0) {
    const absl::Status status =
        FileError(absl::StrCat("cannot replace ", place));
    ::rename(old.c_str(), place.c_str());
    return status;
  }
  for (const std::string& link : leads) {
    RETURN_IF_ERROR(LinkAtomically(link, name));
  }
  return absl::OkStatus();
}

absl::Status CheckpointStore::MarkBest(int64_t global_step) {
  const std::string name = NameOfStep(global_step);
  std::error_code error;
  if (!fs::is_directory(absl::StrCat(folder_, "/", name), error)) {
    return absl::NotFoundError(
        absl::StrCat("no checkpoint of step ", global_step, " in ", folder_));
  }
  return LinkAtomically(folder_ + "/best", name);
}

std::set<std::string> CheckpointStore::Named() const {
  std::set<std::string> names;
  std::error_code absent;
  for (const char* link : {"latest", "best"}) {
    names.insert(
        fs::read_symlink(fs::path(folder_) / link, absent).filename().string());
  }
  return names;
}

void CheckpointStore::Remove(const std::string& name) {
  std::error_code error;
  // Renamed first: what has a checkpoint's name is whole.
  fs::rename(fs::path(folder_) / name, Aside(name), error);
  fs::remove_all(Aside(name), error);
}

void CheckpointStore::RemoveOld() {
  const std::set<std::string> kept = Named();
  std::error_code error;
  // By when they were written: a run that went back to an earlier step leaves
  // later steps of its former self behind.
  std::vector<std::pair<fs::file_time_type, std::string>> due;
  for (const fs::path& path : ListFolder(folder_)) {
    const std::string name = path.filename().string();
    if (!IsStep(path)) continue;
    if (!fs::exists(path / kBestAlone, error)) {
      due.push_back({fs::last_write_time(path / kSums, error), name});
    } else if (!kept.contains(name)) {
      Remove(name);
    }
  }
  std::sort(due.rbegin(), due.rend());
  for (size_t i = keep_; i < due.size(); ++i) {
    if (!kept.contains(due[i].second)) Remove(due[i].second);
  }
  RemoveOldReplays(folder_, last_step_);
}

// Only one process writes here, so what is aside is of a crashed one, or ours
// from before.
void CheckpointStore::RemoveLeftovers() {
  std::error_code error;
  // A Replace did not come to its end.
  for (const char* link : {"/latest", "/best"}) {
    const fs::path target = fs::read_symlink(folder_ + link, error);
    const std::string name = StepNamed(target);
    if (name == target ||
        !fs::exists(absl::StrCat(folder_, "/", name), error)) {
      continue;
    }
    LinkAtomically(folder_ + link, name).IgnoreError();
  }
  const std::set<std::string> kept = Named();
  for (const fs::path& path : ListFolder(folder_)) {
    const std::string name = path.filename().string();
    if (absl::StartsWith(name, kAsidePrefix) && !kept.contains(name)) {
      fs::remove_all(path, error);
    }
  }
}

}  // namespace flotilla
