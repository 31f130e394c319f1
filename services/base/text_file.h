#ifndef FLOTILLA_SERVICES_BASE_TEXT_FILE_H_
#define FLOTILLA_SERVICES_BASE_TEXT_FILE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace flotilla {

// All of the file at `path`; nullopt if it cannot be read.
std::optional<std::string> WholeFile(const std::string& path);

// Its first bytes, `most` of them at most; "" if it cannot be read.
std::string FirstBytes(const std::string& path, size_t most);

// The first line of the file at `path`; "" if there is none.
std::string FirstLine(const std::string& path);

// Its last `most` lines, without looking further back than 8 KiB,
// nor at what is written meanwhile.
std::vector<std::string> LastLines(const std::string& path, size_t most);

// Its last line that is not empty; "" if there is none.
std::string LastLine(const std::string& path);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_TEXT_FILE_H_
