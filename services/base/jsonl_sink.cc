#include "services/base/jsonl_sink.h"

#include <algorithm>
#include <charconv>
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
  std::string kept, moved;
  for (std::string line; std::getline(in, line);) {
    const bool has_end = !in.eof();
    int64_t line_update = 0;
    if (has_end && ParseUpdate(line, &line_update) && line_update <= update) {
      absl::StrAppend(&kept, line, "\n");
    } else {
      absl::StrAppend(&moved, line, "\n");
      ++aside.lines;
      aside.last_update = std::max(aside.last_update, line_update);
    }
  }
  in.close();
  if (aside.lines == 0) return aside;
  aside.path =
      UnusedName(update < 0 ? BeforeStartingOver(path)
                            : absl::StrCat(path, ".after_update_", update));
  // The copy comes first: a crash between the two loses nothing.
  RETURN_IF_ERROR(WriteFileAtomically(aside.path, moved));
  RETURN_IF_ERROR(WriteFileAtomically(path, kept));
  return aside;
}

}  // namespace flotilla
