#include "launcher/watch/watch_screen.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/numbers.h"
#include "launcher/watch/terminal.h"
#include "launcher/watch/watch_view.h"
#include "services/base/mutex.h"
#include "services/base/run_folder.h"
#include "services/base/run_summary.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"

namespace flotilla {
namespace {

constexpr absl::Duration kDrawInterval = absl::Seconds(1);
constexpr absl::Duration kPause = absl::Milliseconds(200);
constexpr absl::Duration kWatchStopTimeout = absl::Seconds(5);
// Silence of a coordinator that may be started again; then a result counts.
constexpr absl::Duration kWatchPatience = absl::Seconds(5);
constexpr std::streamoff kLogBytes = 16 << 10;

// The newest status, from a thread of its own that asks again whenever the
// connection breaks.
class Stream {
 public:
  Stream(CoordinatorCalls* calls, Terminal* terminal)
      : calls_(calls),
        terminal_(terminal),
        thread_([this](std::stop_token stop) { Run(stop); }) {}

  // What is new; nullopt: nothing.
  std::optional<v1::Status> Take() {
    MutexLock lock(&mu_);
    return std::exchange(newest_, std::nullopt);
  }
  absl::Duration Silence() const {
    MutexLock lock(&mu_);
    return SteadyNow() - heard_at_;
  }

 private:
  void Run(std::stop_token stop) {
    while (!stop.stop_requested()) {
      calls_
          ->WatchStatus(
              kDrawInterval,
              [&](const v1::Status& status) {
                {
                  MutexLock lock(&mu_);
                  newest_ = status;
                  heard_at_ = SteadyNow();
                }
                terminal_->Wake();
                return !stop.stop_requested();
              },
              stop)
          .IgnoreError();
      if (!stop.stop_requested()) calls_->Pause(kPause);
    }
  }

  CoordinatorCalls* const calls_;
  Terminal* const terminal_;
  mutable Mutex mu_;
  std::optional<v1::Status> newest_ ABSL_GUARDED_BY(mu_);
  absl::Time heard_at_ ABSL_GUARDED_BY(mu_) = SteadyNow();
  std::jthread thread_;  // last: it uses the rest
};

// The last lines of a file.
std::vector<std::string> Tail(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return {};
  const std::streamoff size = in.tellg();
  const std::streamoff from = std::max<std::streamoff>(0, size - kLogBytes);
  in.seekg(from);
  std::string text(static_cast<size_t>(size - from), '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  std::vector<std::string> lines =
      absl::StrSplit(text, '\n', absl::SkipWhitespace());
  if (from > 0 && !lines.empty()) lines.erase(lines.begin());  // half of one
  return lines;
}

// Whether the folder has a result that was written since.
bool HasEnded(const RunAddress& run, std::filesystem::file_time_type since) {
  if (run.run_dir.empty()) return false;
  const std::string path = RunFolder(run.run_dir).summary();
  std::error_code absent;
  const auto written = std::filesystem::last_write_time(path, absent);
  return !absent && written >= since && ReadRunSummary(path).ok();
}

}  // namespace

absl::StatusOr<std::optional<v1::Status>> WatchOnScreen(const RunAddress& run,
                                                        const v1::Status& first,
                                                        CoordinatorCalls* calls,
                                                        std::stop_token stop) {
  const auto began = std::filesystem::file_time_type::clock::now();
  ASSIGN_OR_RETURN(const std::unique_ptr<Terminal> terminal, Terminal::Open());
  const std::stop_callback wakes(stop, [&] { terminal->Wake(); });
  WatchView view(LocaleIsUtf8());
  view.Take(first);
  Stream stream(calls, terminal.get());
  std::string complaint;  // of a stop that was not taken
  bool closed = false;
  while (!stop.stop_requested() && !closed) {
    if (std::optional<v1::Status> status = stream.Take()) {
      view.Take(*status);
      if (status->state() == v1::CLOSED) return status;
    }
    const absl::Duration silence = stream.Silence();
    if (silence >= kWatchPatience && HasEnded(run, began)) {
      return absl::UnavailableError("the run is over");
    }
    view.SetSilence(
        silence >= 3 * kDrawInterval
            ? absl::StrCat("the coordinator at ", calls->address(),
                           " has not answered for ",
                           BriefSeconds(absl::ToDoubleSeconds(silence)),
                           "; this is what it said last")
            : complaint);
    if (!run.run_dir.empty() && view.LogRank() >= 0) {
      view.SetLog(Tail(RunFolder(run.run_dir).rank_log(view.LogRank())));
    }
    terminal->Draw(view.Render(terminal->columns(), terminal->rows()));
    for (const int key : terminal->AwaitKeys(kDrawInterval, &closed)) {
      switch (view.Press(key)) {
        case WatchView::Wish::kQuit:
          return std::nullopt;
        case WatchView::Wish::kStop:
          complaint = std::string(
              calls->Stop("flotilla status --watch", kWatchStopTimeout)
                  .message());
          break;
        case WatchView::Wish::kNothing:
          break;
      }
    }
  }
  return std::nullopt;
}

}  // namespace flotilla
