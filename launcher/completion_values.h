#ifndef FLOTILLA_LAUNCHER_COMPLETION_VALUES_H_
#define FLOTILLA_LAUNCHER_COMPLETION_VALUES_H_

#include <string>

#include "services/base/completion.h"

namespace flotilla {

// What stands for the values that the launcher's commands take: CONFIG, RUN,
// FIELD, PATH=VALUE (level by level, then the values of the field), ID. A
// ValueSource.
Completion CompletionValues(const std::string& value_name,
                            const std::string& typed);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_COMPLETION_VALUES_H_
