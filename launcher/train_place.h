#ifndef FLOTILLA_LAUNCHER_TRAIN_PLACE_H_
#define FLOTILLA_LAUNCHER_TRAIN_PLACE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/topology.h"
#include "launcher/train_flags.h"
#include "services/base/run_folder.h"

namespace flotilla {

// Where a run lives and what it goes on from.
struct TrainPlace {
  std::string run_dir;
  bool is_named_here = false;  // run_dir: nobody chose its name
  std::string config_path;
  std::optional<std::string> resume;  // "latest" or a checkpoint's path
  std::string notice;  // for people, where it is not what was typed; "": it is
  std::string source_run;  // the folder of the run that is resumed; "": none

  // Whether the run that is resumed is the one that lives there.
  bool GoesOnInPlace() const;

  std::string checkpoint() const {
    return *resume == "latest" ? RunFolder(run_dir).latest_checkpoint()
                               : *resume;
  }
};

// By the flags and, where several launchers have to agree, by the job.
// Errors: kInvalidArgument with the remedy, where there is no such
// configuration, run or checkpoint, or a run that nobody asked to go on with.
absl::StatusOr<TrainPlace> FindTrainPlace(TrainFlags flags,
                                          const Topology& topology);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_TRAIN_PLACE_H_
