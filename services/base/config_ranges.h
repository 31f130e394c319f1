#ifndef FLOTILLA_SERVICES_BASE_CONFIG_RANGES_H_
#define FLOTILLA_SERVICES_BASE_CONFIG_RANGES_H_

#include <google/protobuf/message.h>

#include <vector>

#include "services/base/config_rules.h"

namespace flotilla {

// Adds to `problems` every number of `config`, down all its sections, that is
// not finite or outside the `range` written beside its field, in the order of
// the fields. What is unset and has no default has a meaning of its own, and is
// not looked at.
void FindOutOfRange(const google::protobuf::Message& config,
                    std::vector<ConfigProblem>* problems);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_CONFIG_RANGES_H_
