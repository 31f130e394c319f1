#include "launcher/trackers.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "launcher/python_program.h"
#include "services/base/atomic_file.h"
#include "services/base/nearest_name.h"
#include "services/base/printable.h"
#include "services/base/scratch_folder.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"
#include "services/base/text_file.h"

namespace flotilla {
namespace {

constexpr absl::Duration kImportTimeout = absl::Minutes(2);
constexpr absl::Duration kLookInterval = absl::Seconds(1);
// Alive, it touches its file every few seconds; to begin may take it longer.
constexpr absl::Duration kSilent = absl::Seconds(30);
constexpr absl::Duration kFinishTimeout = absl::Minutes(1);
constexpr absl::Duration kSilentFinishTimeout = absl::Seconds(3);
constexpr absl::Duration kSayItWaits = absl::Seconds(3);
constexpr absl::Duration kPoll = absl::Milliseconds(50);
constexpr int kMostRestarts = 3;
constexpr absl::Duration kRestartWindow = absl::Minutes(10);
constexpr size_t kLongestReason = 1024;

absl::Time WrittenAt(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 ? absl::TimeFromTimespec(info.st_mtim)
                                        : absl::InfinitePast();
}

}  // namespace

struct Trackers::SideCar {
  std::string name;
  RestartBudget budget{kMostRestarts, kRestartWindow};
  std::unique_ptr<Subprocess> process = nullptr;  // null: it does not run
  absl::Time started = absl::InfinitePast();
  absl::Time start_at = absl::InfinitePast();  // where it does not run
  bool silent = false;
  // Its budget was spent and it has not come to send since: that was told.
  bool left_alone = false;
};

absl::StatusOr<std::vector<std::string>> ParseTrackers(
    const std::vector<std::string>& named) {
  const std::vector<std::string> known = absl::StrSplit(kTrackers, '|');
  std::vector<std::string> trackers;
  for (const std::string& list : named) {
    for (const auto& piece : absl::StrSplit(list, ',', absl::SkipEmpty())) {
      const std::string name(piece);
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("--track is \"", name, "\"; expected one of ",
                         absl::StrJoin(known, ", "), DidYouMean(name, known)));
      }
      if (std::find(trackers.begin(), trackers.end(), name) == trackers.end()) {
        trackers.push_back(name);
      }
    }
  }
  return trackers;
}

absl::Status CheckTrackers(const TrackOptions& options, std::stop_token stop) {
  const ScratchFolder scratch;
  RETURN_IF_ERROR(scratch.status());
  SubprocessOptions program;
  program.guarded = true;
  std::vector<std::unique_ptr<Subprocess>> checks;
  for (const std::string& name : options.trackers) {
    ASSIGN_OR_RETURN(program.argv,
                     WatchCommand({"track", "--tracker=" + name, "--check"}));
    program.log_path = absl::StrCat(scratch.path(), "/", name);
    ASSIGN_OR_RETURN(checks.emplace_back(), Subprocess::Start(program));
  }
  const absl::Time deadline = SteadyNow() + kImportTimeout;
  for (size_t i = 0; i < checks.size(); ++i) {
    const std::string& name = options.trackers[i];
    const auto& checking = checks[i];
    std::optional<Subprocess::Exit> exit;
    while (!(exit = checking->Wait(kPoll)) && SteadyNow() < deadline) {
      if (stop.stop_requested()) return absl::CancelledError("told to stop");
    }
    if (exit && exit->code == 0) continue;
    const std::string why = LastLine(absl::StrCat(scratch.path(), "/", name));
    return absl::InvalidArgumentError(
        exit && !why.empty()
            ? PrintableLine(why, kLongestReason)
            : absl::StrCat("--track ", name, ": ", program.argv[0],
                           " ended with ",
                           exit ? exit->ToString() : "nothing in 2 minutes",
                           " when it was asked for its packages"));
  }
  return absl::OkStatus();
}

Trackers::Trackers(const TrackOptions& options, const RunFolder& folder,
                   std::function<void(const std::string&)> notice)
    : options_(options), folder_(folder), notice_(std::move(notice)) {
  for (const std::string& name : options.trackers) {
    cars_.push_back(std::make_unique<SideCar>());
    cars_.back()->name = name;
  }
  std::error_code error;
  std::filesystem::remove(Over(), error);  // of the run that this one resumes
}

Trackers::~Trackers() = default;

std::string Trackers::Over() const { return folder_.path() + "/trackers/over"; }

std::string Trackers::LogOf(const SideCar& car) const {
  return absl::StrCat(folder_.logs(), "/track_", car.name, ".log");
}

absl::Status Trackers::Start(SideCar* car) {
  car->started = absl::Now();
  car->silent = false;
  SubprocessOptions program;
  ASSIGN_OR_RETURN(
      program.argv,
      WatchCommand({"track", "--tracker=" + car->name,
                    "--run-dir=" + folder_.path(),
                    "--project=" + options_.project,
                    "--group=" + options_.group, "--tags=" + options_.tags}));
  program.log_path = LogOf(*car);
  program.guarded = true;
  ASSIGN_OR_RETURN(car->process, Subprocess::Start(program));
  return absl::OkStatus();
}

void Trackers::StartAgain(SideCar* car, const std::string& why,
                          absl::Time now) {
  // A week in which it fails is no reason to say so a thousand times.
  const bool told = car->left_alone;
  const auto pause = told ? std::nullopt : car->budget.Charge(now);
  car->start_at = now + pause.value_or(kRestartWindow);
  car->left_alone = !pause;
  if (told) return;
  notice_(absl::StrCat(
      "tracker ", car->name, " ", why, "; ",
      pause ? absl::StrCat("starting it again", AfterPause(*pause))
            : absl::StrCat("it is left alone now, but for a try every ",
                           absl::FormatDuration(kRestartWindow),
                           " and at the run's end; log: ", LogOf(*car)),
      ", training goes on"));
}

void Trackers::Check(absl::Time now) {
  if (now < check_at_) return;
  check_at_ = now + kLookInterval;
  for (const auto& car : cars_) {
    if (car->process == nullptr) {
      if (now < car->start_at) continue;
      const absl::Status started = Start(car.get());
      if (!started.ok()) {
        StartAgain(car.get(),
                   absl::StrCat("does not start: ", started.message()), now);
      }
      continue;
    }
    if (const auto exit = car->process->Poll()) {
      car->process.reset();
      StartAgain(
          car.get(),
          absl::StrCat("ended (", exit->ToString(), "): ",
                       PrintableLine(LastLine(LogOf(*car)), kLongestReason)),
          now);
      continue;
    }
    const absl::Time sign = std::max(
        car->started, WrittenAt(absl::StrCat(folder_.path(), "/trackers/",
                                             car->name, ".json")));
    const bool silent = now - sign > kSilent;
    // After it was left alone it has to send for a while, not only to begin.
    if (car->left_alone ? sign - car->started > kSilent
                        : silent != car->silent) {
      car->left_alone = false;
      notice_(absl::StrCat("tracker ", car->name,
                           silent ? absl::StrCat(" has sent nothing for ",
                                                 absl::FormatDuration(kSilent),
                                                 "; training goes on")
                                  : std::string(" sends again")));
    }
    car->silent = silent;
  }
}

void Trackers::Finish(const std::function<bool()>& stopped) {
  const absl::Time began = SteadyNow();
  if (cars_.empty()) return;
  // What has just ended, waits to be started again or was left alone has the
  // rest yet to send.
  for (const auto& car : cars_) {
    if (car->process != nullptr && car->process->Poll()) car->process.reset();
    if (car->process != nullptr || stopped()) continue;
    const absl::Status started = Start(car.get());
    if (!started.ok()) {
      notice_(absl::StrCat("tracker ", car->name,
                           " does not start: ", started.message()));
    }
  }
  std::error_code error;
  std::filesystem::create_directory(folder_.path() + "/trackers", error);
  const absl::Status said = WriteFileAtomically(Over(), "");
  if (!said.ok()) notice_(absl::StrCat("trackers: ", said.message()));
  bool told = false;
  for (const auto& car : cars_) {
    if (car->process == nullptr) {
      notice_(absl::StrCat(
          "tracker ", car->name,
          " has not sent everything (it does not run); log: ", LogOf(*car)));
      continue;
    }
    const absl::Time deadline =
        began + (car->silent ? kSilentFinishTimeout : kFinishTimeout);
    std::optional<Subprocess::Exit> exit;
    while (!(exit = car->process->Wait(kPoll)) && SteadyNow() < deadline &&
           !stopped()) {
      if (told || SteadyNow() - began < kSayItWaits) continue;
      told = true;
      notice_(
          absl::StrCat("tracker ", car->name, " still sends; Ctrl-C ends it"));
    }
    if (!exit || exit->code != 0) {
      notice_(absl::StrCat(
          "tracker ", car->name, " has not sent everything (",
          exit ? absl::StrCat(
                     exit->ToString(), ": ",
                     PrintableLine(LastLine(LogOf(*car)), kLongestReason))
               : "it was ended",
          "); log: ", LogOf(*car)));
    }
    car->process.reset();
  }
}

}  // namespace flotilla
