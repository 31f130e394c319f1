#include "launcher/follow.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "launcher/run_record.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"
#include "services/base/text_file.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

constexpr char kSums[] = "SHA256SUMS";
constexpr char kWeights[] = "weights.safetensors";
constexpr char kHeld[] = ".following";  // in the run's folder
constexpr int kAttempts = 3;            // to play with a checkpoint
constexpr int kAttemptPolls = 10;       // between them

absl::Status SystemError(const std::string& what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

std::optional<int64_t> StepOf(absl::string_view name) {
  int64_t step = 0;
  if (!absl::ConsumePrefix(&name, "step_") || name.empty() ||
      name.find_first_not_of("0123456789") != name.npos ||
      !absl::SimpleAtoi(name, &step)) {
    return std::nullopt;
  }
  return step;
}

// "HEX  NAME" a line, as sha256sum writes them, by name.
std::map<std::string, std::string> ParseSums(const std::string& text) {
  std::map<std::string, std::string> sums;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits("  ", 1));
    if (!parts.second.empty() && !absl::StrContains(parts.second, '/')) {
      sums[std::string(parts.second)] = std::string(parts.first);
    }
  }
  return sums;
}

// Whether `folder` was opened under this name and still has it.
bool IsStillAt(int folder, const std::string& path) {
  struct stat ours = {}, there = {};
  return fstat(folder, &ours) == 0 && stat(path.c_str(), &there) == 0 &&
         ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

// A file of the open `folder`, whatever the folder is called by now. 0 or errno.
int TakeFile(int folder, const std::string& name, const std::string& to) {
  if (linkat(folder, name.c_str(), AT_FDCWD, to.c_str(), 0) == 0) return 0;
  if (errno == ENOENT) return ENOENT;
  // File systems without hard links.
  const std::string from = absl::StrCat("/proc/self/fd/", folder, "/", name);
  std::error_code error;
  fs::copy_file(from, to, error);
  return error.value();
}

// What there is to keep of what was played.
Json MakeLine(const std::string& name, const std::string& weights,
              const std::string& held, const Json& played, double seconds) {
  Json line = {{"checkpoint", name}, {"global_step", *StepOf(name)}};
  const auto progress =
      ParseFlatJson(WholeFile(CheckpointFolder(held).progress()).value_or(""));
  int64_t update = 0;
  double wall_seconds = 0;
  if (progress.ok()) {
    const auto find = [&](const char* member) {
      const auto found = progress->find(member);
      return found == progress->end() ? std::string() : found->second;
    };
    if (absl::SimpleAtoi(find("update"), &update)) line["update"] = update;
    if (absl::SimpleAtod(find("wall_seconds"), &wall_seconds)) {
      line["wall_seconds"] = wall_seconds;
    }
  }
  const Json none = Json::array();
  const Json& episodes =
      played.contains("episodes") ? played.at("episodes") : none;
  line["episodes"] = episodes.size();
  for (const char* member : {"mean_return", "min_return", "max_return"}) {
    if (played.contains(member)) {
      line[absl::StrCat("eval/", member)] = played.at(member);
    }
  }
  // Means over the episodes that have it, as the run's own evaluations are.
  std::map<std::string, std::pair<double, int>> sums;
  for (const Json& episode : episodes) {
    for (const auto& [member, value] : episode.items()) {
      if (member == "return" || member == "mean_length" || !value.is_number()) {
        continue;
      }
      auto& [sum, count] = sums[member == "length" ? "mean_length" : member];
      sum += value.get<double>();
      ++count;
    }
  }
  for (const auto& [member, sum] : sums) {
    const std::string key = "eval/" + member;
    if (!line.contains(key)) line[key] = sum.first / sum.second;
  }
  if (line.contains("update")) line["eval/update"] = update;
  line["seconds"] = seconds;
  line["weights_sha256"] = weights;
  return line;
}

// Asks little of a file system that others share: the record is read once there
// is a result.
bool IsOver(const RunFolder& run) {
  std::error_code error;
  if (!fs::exists(run.summary(), error)) return false;
  const std::string status = ReadRunRecord(run.path(), absl::Now()).status;
  return status == "solved" || status == "completed" || status == "stopped" ||
         status == "failed";
}

void Wait(absl::Duration time, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, absl::ToChronoNanoseconds(time),
                 [] { return false; });
}

// Whether it would be so the next time, too.
bool IsFinal(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

// As log->Append, but waits while the disk is full: a run goes on then, too,
// and the line took an evaluation. Errors: those of Append; of a full disk only
// at `stop`.
absl::Status AppendOnceThereIsRoom(const Json& line,
                                   const FollowOptions& options, FollowLog* log,
                                   const std::stop_token& stop) {
  for (bool told = false;; told = true) {
    const absl::Status status = log->Append(line);
    if (!absl::IsResourceExhausted(status) || stop.stop_requested()) {
      return status;
    }
    if (!told) {
      options.on_skipped(absl::StrCat(
          line.at("checkpoint").get<std::string>(),
          " is evaluated, its line waits for room: ", status.message()));
    }
    Wait(options.poll, stop);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<FollowLog>> FollowLog::Open(
    const RunFolder& run) {
  const std::string path = run.evaluations();
  const int fd =
      open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return SystemError("open", path);
  std::unique_ptr<FollowLog> log(new FollowLog(path, fd));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return absl::FailedPreconditionError(
        absl::StrCat("the run in ", run.path(),
                     " is being followed already: another process has ", path,
                     "; one at a time evaluates its checkpoints"));
  }
  RETURN_IF_ERROR(log->Read());
  return log;
}

FollowLog::~FollowLog() { close(fd_); }

absl::Status FollowLog::Read() {
  const std::string text = WholeFile(path_).value_or("");
  const size_t whole = text.rfind('\n') + 1;  // 0 if there is no line
  if (whole < text.size() && ftruncate(fd_, static_cast<off_t>(whole)) != 0) {
    return SystemError("shorten", path_);
  }
  int number = 0;
  for (absl::string_view one :
       absl::StrSplit(absl::string_view(text).substr(0, whole), '\n')) {
    ++number;
    if (one.empty()) continue;
    const auto line = ParseJson(std::string(one));
    const auto text_of = [&](const char* member) {
      return line.ok() && line->is_object() && line->contains(member) &&
                     line->at(member).is_string()
                 ? line->at(member).get<std::string>()
                 : std::string();
    };
    if (text_of("checkpoint").empty()) {
      return absl::DataLossError(absl::StrCat(
          path_, " line ", number,
          " does not tell of a checkpoint; remove the line, or move the file "
          "away to evaluate all checkpoints again"));
    }
    done_.insert({text_of("checkpoint"), text_of("weights_sha256")});
  }
  return absl::OkStatus();
}

bool FollowLog::Has(const std::string& checkpoint,
                    const std::string& weights) const {
  return done_.contains({checkpoint, weights});
}

absl::Status FollowLog::Append(const Json& line) {
  if (!IsStillAt(fd_, path_)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path_,
        " was removed or replaced while it was being written; start "
        "again"));
  }
  // Nothing may stand behind a part of a line.
  if (whole_ >= 0 && ftruncate(fd_, whole_) != 0) {
    return SystemError("shorten", path_);
  }
  whole_ = -1;
  const std::string text = FormatJson(line) + "\n";
  const off_t before = lseek(fd_, 0, SEEK_END);
  const ssize_t written = write(fd_, text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size()) || fsync(fd_) != 0) {
    if (written >= 0 && written < static_cast<ssize_t>(text.size())) {
      errno = ENOSPC;
    }
    const absl::Status status = SystemError("write", path_);
    // What is there of it goes before the next line, or at the next start, if
    // not now.
    if (ftruncate(fd_, before) != 0) whole_ = before;
    return status;
  }
  done_.insert({line.at("checkpoint").get<std::string>(),
                line.at("weights_sha256").get<std::string>()});
  return absl::OkStatus();
}

std::vector<std::string> ListCheckpoints(const std::string& folder) {
  std::vector<std::pair<int64_t, std::string>> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (const auto step = StepOf(name)) found.push_back({*step, name});
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (auto& [step, name] : found) names.push_back(std::move(name));
  return names;
}

std::optional<std::string> WeightsSha256(const std::string& checkpoint) {
  const auto text = WholeFile(absl::StrCat(checkpoint, "/", kSums));
  if (!text) return std::nullopt;
  const auto sums = ParseSums(*text);
  const auto weights = sums.find(kWeights);
  return weights == sums.end() ? std::string() : weights->second;
}

absl::Status HoldCheckpoint(const std::string& checkpoint,
                            const std::string& held) {
  // The folder itself, not its name: that may become another's.
  const int folder =
      open(checkpoint.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return SystemError("open", checkpoint);
  const absl::Cleanup close_folder = [folder] { close(folder); };
  std::error_code error;
  fs::create_directories(held, error);
  if (error) {
    errno = error.value();
    return SystemError("make", held);
  }
  const auto take = [&](const std::string& name) {
    const int failed = TakeFile(folder, name, absl::StrCat(held, "/", name));
    if (failed == 0) return absl::OkStatus();
    if (failed != ENOENT) {
      errno = failed;
      return SystemError("link or copy", absl::StrCat(checkpoint, "/", name));
    }
    if (!IsStillAt(folder, checkpoint)) {
      return absl::NotFoundError(absl::StrCat(checkpoint, " was removed"));
    }
    return absl::DataLossError(
        absl::StrCat("checkpoint file ", checkpoint, "/", name, " is missing"));
  };
  RETURN_IF_ERROR(take(kSums));
  const auto sums =
      ParseSums(WholeFile(absl::StrCat(held, "/", kSums)).value_or(""));
  for (const auto& [name, sum] : sums) RETURN_IF_ERROR(take(name));
  return absl::OkStatus();
}

absl::StatusOr<int> FollowRun(const RunFolder& run, const PlayCheckpoint& play,
                              const FollowOptions& options, FollowLog* log,
                              std::stop_token stop) {
  std::error_code error;
  // Two levels under the run, as checkpoints are: the files that the run keeps
  // are found from there.
  const std::string holding = absl::StrCat(run.path(), "/", kHeld);
  fs::remove_all(holding, error);  // a killed follower's
  const absl::Cleanup let_go = [&] { fs::remove_all(holding, error); };
  std::set<std::pair<std::string, std::string>> failed, without_room;
  std::map<std::pair<std::string, std::string>, int> attempts;
  bool waited = false;
  while (!stop.stop_requested()) {
    if (!run.HoldsRun()) {
      return absl::NotFoundError(absl::StrCat("the run's folder ", run.path(),
                                              " was removed or renamed"));
    }
    // Asked first: its last checkpoint is there before its result.
    const bool over = IsOver(run);
    std::string name, weights;
    for (const std::string& each : ListCheckpoints(run.checkpoints())) {
      const auto sha = WeightsSha256(run.checkpoints() + "/" + each);
      if (!sha || log->Has(each, *sha) || failed.contains({each, *sha})) {
        continue;
      }
      name = each;
      weights = *sha;
      break;
    }
    if (name.empty()) {
      if (over) return static_cast<int>(failed.size());
      if (!waited) options.on_waiting();
      waited = true;
      Wait(options.poll, stop);
      continue;
    }
    const absl::Time began = SteadyNow();
    const std::string held = absl::StrCat(holding, "/", name);
    fs::remove_all(held, error);
    absl::Status status = HoldCheckpoint(run.checkpoints() + "/" + name, held);
    if (absl::IsNotFound(status)) {
      options.on_skipped(
          absl::StrCat(name, " is left out: the run has removed it"));
      continue;
    }
    Json line;
    if (status.ok()) {
      const auto played = play(held);
      status = played.status();
      if (status.ok()) {
        // The name may have become another's before it was held.
        line = MakeLine(name, WeightsSha256(held).value_or(weights), held,
                        *played, absl::ToDoubleSeconds(SteadyNow() - began));
      }
    }
    // First: on a full disk, what the run removes has to make room.
    fs::remove_all(held, error);
    if (absl::IsCancelled(status)) return status;
    if (status.ok()) {
      RETURN_IF_ERROR(AppendOnceThereIsRoom(line, options, log, stop));
      options.on_evaluated(line);
    } else if (absl::IsResourceExhausted(status)) {  // to hold or to play it
      if (without_room.insert({name, weights}).second) {
        options.on_skipped(
            absl::StrCat(name, " waits for room: ", status.message()));
      }
      Wait(kAttemptPolls * options.poll, stop);
    } else if (!IsFinal(status) && ++attempts[{name, weights}] < kAttempts) {
      // An env server, a program that is being installed: they may be back.
      Wait(kAttemptPolls * options.poll, stop);
    } else {
      failed.insert({name, weights});
      options.on_skipped(absl::StrCat(
          name, " is left out, it cannot be played: ", status.message()));
    }
  }
  return absl::CancelledError("told to stop");
}

}  // namespace flotilla
