#include "launcher/supervisor.h"

#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "services/base/steady_now.h"
#include "services/base/text_file.h"

namespace flotilla {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(20);
constexpr size_t kLogLines = 5;
constexpr size_t kWordsLines = 60;  // of last words: a traceback
constexpr int kCannotLoad = 127;    // what the dynamic loader ends with

bool IsOrderly(const Subprocess::Exit& exit) {
  return exit.signal == 0 &&
         (exit.code == kExitDone || exit.code == kExitPreempted ||
          exit.code == kExitInterrupted);
}

}  // namespace

// One learner, over all its incarnations.
struct Supervisor::Slot {
  Slot(int index, const RestartBudget& budget) : index(index), budget(budget) {}

  const int index;
  RestartBudget budget;
  std::unique_ptr<Subprocess> process;  // null: not running
  std::optional<absl::Time> restart_at;
  std::optional<int> exit_code;  // it is done, and how
  bool killed = false;           // it was given up
  int starts = 0;
};

Supervisor::Supervisor(SupervisorOptions options)
    : options_(std::move(options)) {
  for (int i = 0; i < options_.num_learners; ++i) {
    slots_.push_back(std::make_unique<Slot>(
        i, RestartBudget(options_.max_restarts, options_.restart_window)));
  }
}

Supervisor::~Supervisor() = default;

SupervisorResult Supervisor::Run() {
  for (auto& slot : slots_) Start(slot.get());
  while (!failed_) {
    if (options_.stop_now()) {
      options_.notice("interrupted again: ending at once, saved or not");
      Fail(kExitInterrupted, "");
      break;
    }
    ForwardStop();
    for (auto& slot : slots_) Reap(slot.get());
    if (failed_ || AllDone()) break;
    if (SteadyNow() >= stop_deadline_) {
      EndStop();
      break;
    }
    for (auto& slot : slots_) {
      if (!slot->restart_at) continue;
      if (SomeoneEnded()) {  // well: the run is over
        slot->restart_at.reset();
        slot->exit_code = kExitFailed;
      } else if (SteadyNow() >= *slot->restart_at) {
        Start(slot.get());
      }
    }
    const absl::Status status = options_.tick();
    if (!status.ok()) Fail(kExitFailed, std::string(status.message()));
    absl::SleepFor(kTick);
  }
  for (auto& slot : slots_) {  // all at once, then reap
    if (slot->process != nullptr) slot->process->Signal(SIGKILL, true);
  }
  for (auto& slot : slots_) slot->process.reset();
  return Verdict();
}

void Supervisor::Start(Slot* slot) {
  slot->restart_at.reset();
  slot->killed = false;
  const bool replaces = slot->starts > 0;
  const bool alone =
      replaces && std::none_of(slots_.begin(), slots_.end(), [](const auto& s) {
        return s->process != nullptr;
      });
  const LearnerStart start = {
      .index = slot->index,
      .incarnation = options_.first_incarnation + slot->starts,
      .restarts = slot->budget.total(),
      .alone = alone};
  ++slot->starts;
  std::error_code ignored;
  std::filesystem::remove(options_.error_path(slot->index), ignored);
  auto process = Subprocess::Start(options_.command(start));
  if (process.ok()) {
    slot->process = *std::move(process);
  } else if (
      replaces) {  // no room for a process, or one that is being installed
    StartAgain(slot,
               absl::StrCat(options_.name(slot->index), " cannot be started (",
                            process.status().message(), ")"));
  } else {
    Fail(kExitFailed, std::string(process.status().message()));
  }
}

void Supervisor::Reap(Slot* slot) {
  if (slot->process == nullptr) return;
  const std::optional<Subprocess::Exit> exit = slot->process->Poll();
  if (!exit) {
    if (!slot->killed && options_.given_up(slot->index, slot->process->pid())) {
      slot->killed = true;
      slot->process->Signal(SIGKILL, true);
    }
    return;
  }
  slot->process.reset();
  if (IsOrderly(*exit)) {
    slot->exit_code = exit->code;
  } else if (exit->signal == 0 && exit->code == kExitUsage) {
    Fail(kExitUsage, RootCause(""));
  } else if (exit->signal == 0 && exit->code == kCannotLoad) {
    Fail(kExitFailed, RootCause(absl::StrCat(
                          options_.name(slot->index),
                          " cannot start: a library is missing; `flotilla "
                          "doctor` says what mends it")));
  } else if (exit->signal == 0 && exit->code == kExitHopeless) {
    Fail(kExitFailed, RootCause(""));
  } else {
    OnCrash(slot, *exit);
  }
}

void Supervisor::OnCrash(Slot* slot, const Subprocess::Exit& exit) {
  const std::string name = options_.name(slot->index);
  const std::string died = absl::StrCat(name, " died (", exit.ToString(), ")");
  if (forwarded_ != 0) {
    // A learner that had not started to listen yet had nothing to save either.
    slot->exit_code =
        exit.signal == forwarded_ ? ExitCodeOf(forwarded_) : exit.code;
    if (exit.signal != forwarded_) {
      options_.notice(absl::StrCat(died, " while stopping"));
    }
    return;
  }
  StartAgain(slot, died);
}

// After a pause, while the run goes on and its budget lasts.
void Supervisor::StartAgain(Slot* slot, const std::string& trouble) {
  const bool others_done = SomeoneEnded();
  if (others_done || options_.run_is_over()) {
    options_.notice(absl::StrCat(trouble, " after the run had ended"));
    slot->exit_code = others_done ? kExitFailed : kExitDone;
    return;
  }
  const std::optional<absl::Duration> pause = slot->budget.Charge(SteadyNow());
  if (!pause) {
    Fail(kExitFailed,
         RootCause(absl::StrCat(
             trouble,
             options_.max_restarts == 0
                 ? std::string("; --max-restarts is 0")
                 : absl::StrCat(
                       " again, after ", options_.max_restarts, " restarts in ",
                       absl::FormatDuration(options_.restart_window)))));
    return;
  }
  const std::string words = FirstLine(options_.error_path(slot->index));
  options_.notice(absl::StrCat(
      trouble, words.empty() ? "" : absl::StrCat(": ", words),
      "; starting it again", AfterPause(*pause), " (restart ",
      slot->budget.total(), "; log: ", options_.log_path(slot->index), ")"));
  slot->restart_at = SteadyNow() + *pause;
}

void Supervisor::ForwardStop() {
  const int signal = options_.stop_signal();
  if (signal == 0 || forwarded_ != 0) return;
  forwarded_ = signal;
  stop_deadline_ = SteadyNow() + options_.save_and_stop;
  options_.notice(
      absl::StrCat(signal == SIGINT ? "interrupted" : sigdescr_np(signal),
                   ": saving and stopping, for ",
                   absl::FormatDuration(options_.save_and_stop), " at most",
                   signal == SIGINT ? " (Ctrl-C again ends at once)" : ""));
  for (auto& slot : slots_) {
    if (slot->process != nullptr) {
      slot->process->Signal(signal);
    } else if (!slot->exit_code) {
      slot->restart_at.reset();  // dead, and not wanted back
      slot->exit_code = kExitFailed;
    }
  }
}

void Supervisor::EndStop() {
  std::vector<std::string> late;
  for (const auto& slot : slots_) {
    if (slot->process != nullptr) late.push_back(options_.name(slot->index));
  }
  Fail(kExitFailed,
       absl::StrCat(absl::StrJoin(late, ", "), " did not save and stop within ",
                    absl::FormatDuration(options_.save_and_stop),
                    " (runtime.save_and_stop_seconds) and was killed; the last "
                    "checkpoint stands"));
}

// Learners end well only once the result is written: there is nothing left to
// restart one for. Some may have ended since they were last asked.
bool Supervisor::SomeoneEnded() const {
  return std::any_of(slots_.begin(), slots_.end(), [](const auto& slot) {
    if (slot->process == nullptr) return slot->exit_code.has_value();
    const auto ended = slot->process->Poll();
    return ended && IsOrderly(*ended);
  });
}

bool Supervisor::AllDone() const {
  return std::all_of(slots_.begin(), slots_.end(), [](const auto& slot) {
    return slot->exit_code.has_value();
  });
}

void Supervisor::Fail(int exit_code, const std::string& failure) {
  if (failed_) return;
  failed_ = SupervisorResult{
      .exit_code = exit_code, .failure = failure, .restarts = 0};
}

// The headline, then the earliest last words of any learner, with the traceback
// that may follow them; where there are none, the end of the log.
std::string Supervisor::RootCause(const std::string& headline) const {
  std::string cause, source;
  std::vector<std::string> traceback;
  std::filesystem::file_time_type earliest =
      std::filesystem::file_time_type::max();
  for (const auto& slot : slots_) {
    const std::string path = options_.error_path(slot->index);
    std::error_code error;
    const auto written = std::filesystem::last_write_time(path, error);
    const std::string words = FirstLine(path);
    if (error || words.empty() || written >= earliest) continue;
    earliest = written;
    cause = absl::StrCat(options_.name(slot->index), ": ", words);
    source = options_.log_path(slot->index);
    traceback = LastLines(path, kWordsLines);
    if (!traceback.empty() && traceback[0] == words) {
      traceback.erase(traceback.begin());
    }
  }
  std::vector<std::string> lines;
  if (!headline.empty()) lines.push_back(headline);
  if (!cause.empty()) {
    lines.push_back(cause);
    lines.insert(lines.end(), traceback.begin(), traceback.end());
    lines.push_back(absl::StrCat("log: ", source));
    return absl::StrJoin(lines, "\n");
  }
  for (const auto& slot : slots_) {
    if (slot->process != nullptr || slot->exit_code) continue;
    source = options_.log_path(slot->index);
    for (const std::string& line : LastLines(source, kLogLines)) {
      lines.push_back(absl::StrCat("  | ", line));
    }
    if (!source.empty()) lines.push_back(absl::StrCat("log: ", source));
    break;
  }
  return absl::StrJoin(lines, "\n");
}

SupervisorResult Supervisor::Verdict() const {
  SupervisorResult result;
  if (failed_) result = *failed_;
  for (const auto& slot : slots_) result.restarts += slot->budget.total();
  if (failed_) return result;
  const auto any = [&](int code) {
    return std::any_of(slots_.begin(), slots_.end(), [&](const auto& slot) {
      return slot->exit_code == code;
    });
  };
  // Whoever saved, saved for all.
  if (any(kExitInterrupted)) {
    result.exit_code = kExitInterrupted;
  } else if (any(kExitPreempted)) {
    result.exit_code = kExitPreempted;
  } else if (!any(kExitDone)) {
    result.exit_code = kExitFailed;
    result.failure = RootCause("no learner could save");
  }
  return result;
}

}  // namespace flotilla
