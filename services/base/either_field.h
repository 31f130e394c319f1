#ifndef FLOTILLA_SERVICES_BASE_EITHER_FIELD_H_
#define FLOTILLA_SERVICES_BASE_EITHER_FIELD_H_

#include <string>
#include <vector>

#include "flotilla/v1/config.pb.h"
#include "services/base/config_rules.h"

// Fields that are used instead of others: total_updates instead of
// total_env_steps, checkpoint.count instead of checkpoint.every_updates and
// every_seconds. Of such, one may be set; which is a matter of what is written,
// not of defaults.

namespace flotilla {

// Whether `field` of `message` says nothing, since another is set that is used
// instead of it.
bool IsReplaced(const google::protobuf::Message& message,
                const google::protobuf::FieldDescriptor* field);

// Clears what a file set and one of `overrides` ("path=value") is used instead
// of: the command line has the last word.
void MakeWay(const std::vector<std::string>& overrides, v1::RunConfig* config);

// A problem for each field that is set although another, which is used instead
// of it, is set as well.
std::vector<ConfigProblem> FindBothSet(const v1::RunConfig& config);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_EITHER_FIELD_H_
