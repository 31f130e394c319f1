#ifndef FLOTILLA_SERVICES_BASE_STATUS_MACROS_H_
#define FLOTILLA_SERVICES_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function if `expr`, an absl::Status, is an error.
#define RETURN_IF_ERROR(expr)                            \
  do {                                                   \
    absl::Status flotilla_status_ = (expr);              \
    if (!flotilla_status_.ok()) return flotilla_status_; \
  } while (false)

// Evaluates `expr`, an absl::StatusOr<T>; returns its error from the enclosing
// function, or assigns its value to `lhs`, which may declare a variable. A type
// with a comma in it needs parentheses or `auto`.
#define ASSIGN_OR_RETURN(lhs, expr)                                           \
  FLOTILLA_ASSIGN_OR_RETURN_(FLOTILLA_CONCAT_(flotilla_status_or_, __LINE__), \
                             lhs, expr)

#define FLOTILLA_ASSIGN_OR_RETURN_(result, lhs, expr) \
  auto result = (expr);                               \
  if (!result.ok()) return result.status();           \
  lhs = *std::move(result)

#define FLOTILLA_CONCAT_(a, b) FLOTILLA_CONCAT_INNER_(a, b)
#define FLOTILLA_CONCAT_INNER_(a, b) a##b

#endif  // FLOTILLA_SERVICES_BASE_STATUS_MACROS_H_
