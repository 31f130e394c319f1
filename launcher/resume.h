#ifndef FLOTILLA_LAUNCHER_RESUME_H_
#define FLOTILLA_LAUNCHER_RESUME_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/run_topology.pb.h"
#include "launcher/topology.h"
#include "services/base/run_folder.h"

namespace flotilla {

// Going on with a run: what it was, what differs now, and whether anything is
// left to do.

// Notes how many learners the run in `folder` has. Errors: of the write.
absl::Status WriteRunTopology(const RunFolder& folder,
                              const Topology& topology);

// What was noted; nullopt if nothing was.
// Errors: kDataLoss, naming the file, if it is no such note.
absl::StatusOr<std::optional<v1::RunTopology>> ReadRunTopology(
    const RunFolder& folder);

// Makes `flags` say of the learners what the command line leaves open and the
// run, as it was, does not. `found` is the topology without that.
// Errors: kInvalidArgument, with the flags to give, if the run had several
// nodes and nothing says how many there are now.
absl::Status KeepTopology(const v1::RunTopology& before, const Topology& found,
                          TopologyFlags* flags);

// "" if the run goes on with as many learners as it had, or a line that says
// how many it had, how many it has, and what that makes of an update.
std::string DescribeTopologyChange(const v1::RunTopology& before,
                                   const Topology& after,
                                   const v1::RunConfig& config);

// Every field in which two configurations differ, defaults included, in the
// order of config.proto.
struct FieldChange {
  std::string path;  // "ppo.epochs"; of a map all of it, "custom.options"
  std::string was, is;

  // Whether a --set of `override_text` has to do with it.
  bool IsOf(const std::string& override_text) const;
};
std::vector<FieldChange> FindChanges(const v1::RunConfig& before,
                                     const v1::RunConfig& after);

// The same as --set and `flotilla set` name it: where entries of custom.options differ,
// "custom.options.KEY" for each of them too.
std::vector<std::string> ChangedPaths(const v1::RunConfig& before,
                                      const v1::RunConfig& after);

// Whether a run of `before` can go on as `after`: the same algorithm, and all that
// ShapesCheckpoints (config_change.h). Errors: kInvalidArgument naming whatever
// differs of these.
absl::Status CheckResumable(const v1::RunConfig& before,
                            const v1::RunConfig& after);

// Has `before` and `after` name the files that the run in `source` keeps
// (kept_files.h), wherever the folder is by now, where both have one. Errors:
// kInvalidArgument if `after` names a file with another content; of a library,
// which may change, both name that one then.
absl::Status KeepFiles(const RunFolder& source, v1::RunConfig* before,
                       v1::RunConfig* after);

// The updates behind `checkpoint` (a folder); nullopt if it does not say.
std::optional<int64_t> UpdateOf(const std::string& checkpoint);

// Makes `checkpoint` (a folder, of whichever run) the one that the run in `folder`
// goes back to until it has saved one: its `latest`. Another run's is copied, by hard
// links where it can be: that run may remove it. Errors: kNotFound, naming it;
// kUnavailable, of the disk.
struct LatestBefore {
  std::string link;    // what `latest` was; "": there was none
  std::string copied;  // the folder that was made; "": none
};
absl::StatusOr<LatestBefore> GoOnFrom(const std::string& checkpoint,
                                      const RunFolder& folder);
// Of a run that could not begin there.
void TakeBack(const LatestBefore& before, const RunFolder& folder);

// Why the run in `folder`, resumed from `checkpoint` (a folder), has nothing
// left to do as `config` has it, and what would go further; "" if it has.
std::string NothingLeft(const RunFolder& folder, const std::string& checkpoint,
                        const v1::RunConfig& config);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_RESUME_H_
