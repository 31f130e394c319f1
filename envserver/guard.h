#ifndef FLOTILLA_ENVSERVER_GUARD_H_
#define FLOTILLA_ENVSERVER_GUARD_H_

#include <exception>

#include "absl/status/status.h"

namespace flotilla {

// What `call` returns, an absl::Status or StatusOr. Environments are others' code, and
// may throw: that is kInternal, with what the exception says.
template <typename Call>
auto Guard(const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  } catch (...) {
    return absl::InternalError("an exception that is no std::exception");
  }
}

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_GUARD_H_
