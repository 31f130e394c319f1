#include "learner/checkpoint/replay_files.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "learner/checkpoint/durable_file.h"
#include "learner/checkpoint/summed_files.h"
#include "learner/device/host.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

constexpr char kReplay[] = "replay.safetensors";
constexpr char kReplayPrefix[] = "replay_";
// [2] int64: global step, digest. Beside the contents, whose names have no such.
constexpr char kOrigin[] = "origin";

std::string FolderOf(const std::string& checkpoints, int64_t global_step) {
  return absl::StrFormat("%s/%s%012d", checkpoints, kReplayPrefix, global_step);
}

std::string RankName(int rank) { return absl::StrCat("rank_", rank); }

std::string AsidePrefix(int rank) {
  return absl::StrCat(".aside_", RankName(rank), ".");
}

// Of every step that has a replay, its folder; the newest first.
std::map<int64_t, fs::path, std::greater<>> ReplaySteps(
    const std::string& checkpoints) {
  std::map<int64_t, fs::path, std::greater<>> steps;
  std::error_code error;
  for (fs::directory_iterator at(checkpoints, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    int64_t step = 0;
    if (absl::StartsWith(name, kReplayPrefix) &&
        absl::SimpleAtoi(name.substr(sizeof(kReplayPrefix) - 1), &step)) {
      steps[step] = at->path();
    }
  }
  return steps;
}

void RemoveLeftovers(const std::string& checkpoints, int rank) {
  std::error_code error;
  for (const auto& [step, folder] : ReplaySteps(checkpoints)) {
    for (fs::directory_iterator at(folder, error), end; !error && at != end;
         at.increment(error)) {
      if (absl::StartsWith(at->path().filename().string(), AsidePrefix(rank))) {
        fs::remove_all(at->path(), error);
      }
    }
  }
}

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  fs::create_directory(path, error);
  if (!error) return absl::OkStatus();
  errno = error.value();
  return FileError(absl::StrCat("cannot make ", path));
}

absl::Status WriteAside(const std::string& aside, const ReplayOrigin& origin,
                        TensorMap contents) {
  torch::Tensor of = torch::empty({2}, torch::kInt64);
  Host<int64_t>(of)[0] = origin.global_step;
  Host<int64_t>(of)[1] = std::bit_cast<int64_t>(origin.weights_digest);
  contents[kOrigin] = of;
  ASSIGN_OR_RETURN(SummedFolder files, SummedFolder::Make(aside));
  RETURN_IF_ERROR(files.WriteTensors(kReplay, contents));
  return files.Finish();
}

absl::StatusOr<TensorMap> ReadFrom(const fs::path& folder, int rank,
                                   int64_t global_step,
                                   const ReplayOrigin& wanted) {
  const fs::path place = folder / RankName(rank);
  std::error_code error;
  if (!fs::is_directory(place, error)) {
    return absl::NotFoundError(
        absl::StrCat("step ", global_step, " has none of rank ", rank));
  }
  ASSIGN_OR_RETURN(const SummedReader reader,
                   SummedReader::Open(place.string(), "replay file", ""));
  ASSIGN_OR_RETURN(TensorMap contents, reader.ReadTensors(kReplay));
  const auto of = contents.find(kOrigin);
  if (of == contents.end() || of->second.scalar_type() != torch::kInt64 ||
      of->second.numel() != 2 || Host<int64_t>(of->second)[0] != global_step) {
    return reader.Damaged(kReplay, "it does not say of which step it is");
  }
  const auto digest = std::bit_cast<uint64_t>(Host<int64_t>(of->second)[1]);
  if (global_step == wanted.global_step && digest != wanted.weights_digest) {
    return absl::NotFoundError(
        absl::StrCat("that of step ", global_step,
                     " is of other weights than the checkpoint"));
  }
  contents.erase(of);
  return contents;
}

}  // namespace

absl::Status SaveReplay(const std::string& checkpoints, int rank,
                        const ReplayOrigin& origin, const TensorMap& contents) {
  RETURN_IF_ERROR(MakeFolder(checkpoints));
  RemoveLeftovers(checkpoints, rank);
  const std::string folder = FolderOf(checkpoints, origin.global_step);
  RETURN_IF_ERROR(MakeFolder(folder));
  const auto aside = [&](const char* what) {
    return absl::StrCat(folder, "/", AsidePrefix(rank), what, ::getpid());
  };
  const std::string place = absl::StrCat(folder, "/", RankName(rank));
  const std::string made = aside(""), old = aside("old_");
  std::error_code error;
  absl::Status status = WriteAside(made, origin, contents);
  if (status.ok()) {
    fs::rename(place, old, error);  // if there is one
    if (::rename(made.c_str(), place.c_str()) != 0) {
      status = FileError(absl::StrCat("cannot rename to ", place));
      fs::rename(old, place, error);
    }
  }
  // Room for others.
  fs::remove_all(made, error);
  fs::remove_all(old, error);
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(SyncFolder(folder));
  return SyncFolder(checkpoints);
}

absl::StatusOr<SavedReplay> LoadReplay(const std::string& checkpoint, int rank,
                                       const ReplayOrigin& origin) {
  std::error_code error;
  const fs::path folder = fs::canonical(checkpoint, error);
  const std::string checkpoints = folder.parent_path().string();
  std::string why;
  absl::Status last = absl::NotFoundError(
      absl::StrCat("there is none of rank ", rank, " in ", checkpoints));
  const auto steps = ReplaySteps(checkpoints);
  if (!steps.count(origin.global_step)) {
    why = absl::StrCat("step ", origin.global_step, " has none");
  }
  for (const auto& [step, place] : steps) {
    if (step > origin.global_step) continue;
    absl::StatusOr<TensorMap> contents = ReadFrom(place, rank, step, origin);
    if (contents.ok()) return SavedReplay{*std::move(contents), step, why};
    absl::StrAppend(&why, why.empty() ? "" : "; ", contents.status().message());
    last = contents.status();
  }
  if (why.empty() || absl::IsNotFound(last)) return last;
  return absl::Status(last.code(), why);
}

void RemoveOldReplays(const std::string& checkpoints, int64_t global_step) {
  bool newest = true;
  std::error_code error;
  for (const auto& [step, folder] : ReplaySteps(checkpoints)) {
    if (step > global_step) continue;
    const bool has_checkpoint =
        fs::exists(absl::StrFormat("%s/step_%012d", checkpoints, step), error);
    if (!newest && !has_checkpoint) fs::remove_all(folder, error);
    newest = false;
  }
}

}  // namespace flotilla
