#include "services/base/jsonl_sink.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "services/base/atomic_file.h"
#include "services/base/json.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

constexpr std::streamoff kBlock = 1 << 20;  // of a file, held at once

std::string FormatLine(int64_t global_step, int64_t update, double wall_seconds,
                       std::span<const Metric> metrics) {
  Json line = {{"global_step", global_step},
               {"update", update},
               {"wall_seconds", wall_seconds}};
  for (const Metric& metric : metrics) line[metric.name] = metric.value;
  return FormatJson(line) + "\n";
}

// The update of a line that FormatLine wrote whole; false for anything else.
bool ParseUpdate(const std::string& line, int64_t* update) {
  constexpr std::string_view kKey = "\"update\":";
  if (line.empty() || line.back() != '}') return false;
  const size_t at = line.find(kKey);
  if (at == std::string::npos) return false;
  const char* begin = line.data() + at + kKey.size();
  return std::from_chars(begin, line.data() + line.size(), *update).ec ==
         std::errc();
}

// Whether the last line of `path` has no end.
bool IsCutOff(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in || in.tellg() <= 0) return false;
  in.seekg(-1, std::ios::end);
  return in.get() != '\n';
}

std::string UnusedName(const std::string& stem) {
  std::string name = stem;
  for (int i = 2; std::filesystem::exists(name); ++i) {
    name = absl::StrCat(stem, ".", i);
  }
  return name;
}

absl::Status ReadError(const std::string& path) {
  return absl::UnavailableError(absl::StrCat("cannot read \"", path, "\""));
}

// Of the first `bytes` of the file at `path`. Errors: of the read.
absl::Status AppendBeginning(const std::string& path, std::streamoff bytes,
                             AtomicFile* copy) {
  std::ifstream in(path, std::ios::binary);
  std::string block(static_cast<size_t>(kBlock), '\0');
  while (bytes > 0) {
    const std::streamoff next = std::min(bytes, kBlock);
    if (!in.read(block.data(), next)) return ReadError(path);
    copy->Append(absl::string_view(block).substr(0, next));
    bytes -= next;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<JsonlSink>> JsonlSink::Open(
    const std::string& path) {
  ASSIGN_OR_RETURN(auto file, AppendFile::Open(path));
  if (IsCutOff(path)) file->Append("\n");
  return std::unique_ptr<JsonlSink>(new JsonlSink(std::move(file)));
}

void JsonlSink::Write(int64_t global_step, int64_t update, double wall_seconds,
                      std::span<const Metric> metrics) {
  const std::string line =
      FormatLine(global_step, update, wall_seconds, metrics);
  MutexLock lock(&mu_);
  file_->Append(line);
}

std::string BeforeStartingOver(const std::string& path) {
  return path + ".before_starting_over";
}

absl::StatusOr<LinesSetAside> SetAsideLinesAfter(const std::string& path,
                                                 int64_t update) {
  LinesSetAside aside;
  std::ifstream in(path, std::ios::binary);
  if (!in) return aside;
  std::string line;
  int64_t line_update = 0;
  const auto stays = [&] {
    line_update = 0;
    const bool has_end = !in.eof();
    return has_end && ParseUpdate(line, &line_update) && line_update <= update;
  };
  std::streamoff stay = 0;  // bytes before the first line that moves
  bool any = false;
  while (!any && std::getline(in, line)) {
    any = !stays();
    if (!any) stay += static_cast<std::streamoff>(line.size()) + 1;
  }
  if (in.bad()) return ReadError(path);
  if (!any) return aside;
  aside.path =
      UnusedName(update < 0 ? BeforeStartingOver(path)
                            : absl::StrCat(path, ".after_update_", update));
  // Whoever reads `path` while it grows sees by its being another file that lines of
  // it were lost: it is not shortened in place.
  AtomicFile moved(aside.path), kept(path);
  RETURN_IF_ERROR(AppendBeginning(path, stay, &kept));
  // What a rank 0 wrote that could set nothing aside follows what it has lost.
  do {
    AtomicFile& to = stays() ? kept : moved;
    to.Append(line);
    to.Append("\n");
    if (&to == &kept) continue;
    ++aside.lines;
    aside.last_update = std::max(aside.last_update, line_update);
  } while (std::getline(in, line));
  if (in.bad()) return ReadError(path);
  // The copy comes first: a crash between the two loses nothing.
  RETURN_IF_ERROR(moved.Place());
  RETURN_IF_ERROR(kept.Place());
  return aside;
}

}  // namespace flotilla
