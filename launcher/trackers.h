#ifndef FLOTILLA_LAUNCHER_TRACKERS_H_
#define FLOTILLA_LAUNCHER_TRACKERS_H_

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "launcher/restart_budget.h"
#include "services/base/run_folder.h"
#include "services/base/subprocess.h"

namespace flotilla {

// What --track and its companions say.
struct TrackOptions {
  std::vector<std::string> trackers;  // "wandb", ...; each once
  std::string project = "flotilla";
  std::string group;  // "": none
  std::string tags;   // with commas
};

// The trackers that there are, as `--help` and completion say them.
inline constexpr char kTrackers[] = "wandb|trackio|mlflow|neptune|tensorboard";

// Makes `named`, which may hold commas, a list of trackers, each once.
// Errors: kInvalidArgument, with the nearest.
absl::StatusOr<std::vector<std::string>> ParseTrackers(
    const std::vector<std::string>& named);

// Asks Python for the trackers' packages. Blocks for seconds: they are large.
// Errors: kInvalidArgument with pip's command for what is missing;
// kFailedPrecondition without Python; kCancelled when `stop` is requested.
absl::Status CheckTrackers(const TrackOptions& options, std::stop_token stop);

// The side-cars that send a run's metrics to trackers: a Python process each,
// which reads metrics.jsonl (launcher/python/flotilla_watch/track.py). None of
// them can stop or slow the run: one that dies is started again, within a
// budget and beyond it now and then, and goes on where it was; one that hangs
// is told of.
//
// Not thread-safe.
class Trackers {
 public:
  // `notice` takes what people should know. Starts nothing yet.
  Trackers(const TrackOptions& options, const RunFolder& folder,
           std::function<void(const std::string&)> notice);
  ~Trackers();

  // Starts what has to be started and tells what has to be told. Never blocks.
  void Check(absl::Time now);

  // Lets them send the rest, those that do not run started once more, and ends
  // them. Blocks for a minute at most, for less where one has been silent, or
  // until `stopped`.
  void Finish(const std::function<bool()>& stopped);

 private:
  struct SideCar;

  absl::Status Start(SideCar* car);
  // Has `car`, which does not run for the reason `why`, started later.
  void StartAgain(SideCar* car, const std::string& why, absl::Time now);
  std::string LogOf(const SideCar& car) const;
  // The file that tells them that the run is over.
  std::string Over() const;

  const TrackOptions options_;
  const RunFolder folder_;
  const std::function<void(const std::string&)> notice_;
  std::vector<std::unique_ptr<SideCar>> cars_;
  absl::Time check_at_ = absl::InfinitePast();
};

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_TRACKERS_H_
