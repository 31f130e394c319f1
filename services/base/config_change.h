#ifndef FLOTILLA_SERVICES_BASE_CONFIG_CHANGE_H_
#define FLOTILLA_SERVICES_BASE_CONFIG_CHANGE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"

// Which fields of a RunConfig can change while the run goes on (`flotilla set`),
// and what a change makes of one. The table of them is here and nowhere else.

namespace flotilla {

// Dotted paths of what can change in flight: fields, and maps whose entries can.
std::vector<std::string> ChangeableFields();

// "" if the field at `path` can change in flight; else why it cannot and what
// there is to do, as a sentence goes on behind the field's name. `path` is of a
// field that exists.
std::string WhyFixed(const std::string& path);

// Whether the tensors of a checkpoint follow from the field at `path`: a run that
// goes on cannot change it.
bool ShapesCheckpoints(const std::string& path);

// The dotted path of "path=value".
std::string PathOf(const std::string& override_text);

// What can be told of a change, each "path=value", without the configuration
// that it is to change.
// Errors: kInvalidArgument, naming the field and the remedy, if there is none,
// if one does not exist, cannot change in flight, or is given a value of another
// type or out of its range.
absl::Status CheckChange(const std::vector<std::string>& overrides);

// `config`, which is valid, after a change.
// Errors: also kInvalidArgument if the whole is not valid then, and
// kUnimplemented if this run cannot change so in flight.
absl::StatusOr<v1::RunConfig> Changed(
    const v1::RunConfig& config, const std::vector<std::string>& overrides);

// Whether two configurations, one a change of the other, differ in what an
// algorithm may read, rather than in what is done beside learning alone
// (evaluation, checkpoint, metrics, distributed).
bool ChangesLearning(const v1::RunConfig& before, const v1::RunConfig& after);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_CONFIG_CHANGE_H_
