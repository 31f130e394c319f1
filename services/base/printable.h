#ifndef FLOTILLA_SERVICES_BASE_PRINTABLE_H_
#define FLOTILLA_SERVICES_BASE_PRINTABLE_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace flotilla {

// Words of somebody else's (an environment, a peer, a client), made fit for
// logs, terminals and status: nothing in them moves a cursor, colours a
// terminal or fakes a line of ours.
//
// What is whole UTF-8 and no control character stays; every other byte becomes
// \xNN. Of more than `most` bytes, the first are kept and "... (N bytes in
// all)" says so; never inside a character or an escape.

// On one line: runs of white space become one space.
std::string PrintableLine(absl::string_view text, size_t most = 512);

// Line breaks and tabs stay: for tracebacks.
std::string PrintableText(absl::string_view text, size_t most = 8192);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_PRINTABLE_H_
