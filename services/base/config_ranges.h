#ifndef FLOTILLA_SERVICES_BASE_CONFIG_RANGES_H_
#define FLOTILLA_SERVICES_BASE_CONFIG_RANGES_H_

#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "flotilla/v1/range.pb.h"
#include "services/base/config_rules.h"

namespace flotilla {

// Adds to `problems` every number of `config`, down all its sections, that is
// not finite or outside the `range` written beside its field, in the order of
// the fields. What is unset and has no default has a meaning of its own, and is
// not looked at.
void FindOutOfRange(const google::protobuf::Message& config,
                    std::vector<ConfigProblem>* problems);

// "at least 1 and odd", "from 0 to 1"; "" if it says nothing.
std::string DescribeRange(const v1::Range& range);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_CONFIG_RANGES_H_
