#include "learner/checkpoint/summed_files.h"

#include <sys/stat.h>

#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "learner/checkpoint/durable_file.h"
#include "services/base/sha256.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

absl::StatusOr<std::shared_ptr<std::string>> ReadWhole(
    const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return FileError(absl::StrCat("cannot read ", path));
  auto content = std::make_shared<std::string>(in.tellg(), '\0');
  in.seekg(0);
  in.read(content->data(), static_cast<std::streamsize>(content->size()));
  if (!in) return FileError(absl::StrCat("cannot read ", path));
  return content;
}

}  // namespace

absl::StatusOr<SummedFolder> SummedFolder::Make(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) != 0) {
    return FileError(absl::StrCat("cannot make ", path));
  }
  return SummedFolder(path);
}

absl::StatusOr<std::string> SummedFolder::Write(
    const std::string& name,
    const std::function<absl::Status(const ByteSink&)>& produce) const {
  ASSIGN_OR_RETURN(DurableFile file,
                   DurableFile::Create(absl::StrCat(path_, "/", name)));
  RETURN_IF_ERROR(produce(
      [&](const void* data, size_t size) { return file.Append(data, size); }));
  return file.Finish();
}

absl::Status SummedFolder::WriteTensors(const std::string& name,
                                        const TensorMap& tensors) {
  ASSIGN_OR_RETURN(const std::string sha256,
                   Write(name, [&](const ByteSink& sink) {
                     return WriteSafetensors(tensors, sink);
                   }));
  absl::StrAppend(&sums_, sha256, "  ", name, "\n");
  return absl::OkStatus();
}

absl::Status SummedFolder::WriteText(const std::string& name,
                                     const std::string& text) {
  ASSIGN_OR_RETURN(const std::string sha256,
                   Write(name, [&](const ByteSink& sink) {
                     return sink(text.data(), text.size());
                   }));
  absl::StrAppend(&sums_, sha256, "  ", name, "\n");
  return absl::OkStatus();
}

absl::Status SummedFolder::Finish() {
  const std::string sums = sums_;  // nobody checks the checker
  RETURN_IF_ERROR(WriteText(kSums, sums));
  return SyncFolder(path_);
}

absl::StatusOr<SummedReader> SummedReader::Open(const std::string& folder,
                                                const std::string& what,
                                                const std::string& remedy) {
  SummedReader reader(folder, what, remedy);
  auto sums = ReadWhole(reader.PathOf(kSums));
  if (!sums.ok()) return reader.Damaged(kSums, "it cannot be read");
  for (const absl::string_view line :
       absl::StrSplit(**sums, '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> entry =
        absl::StrSplit(line, absl::MaxSplits("  ", 1));
    reader.sums_[entry.second] = entry.first;
  }
  return reader;
}

absl::StatusOr<std::shared_ptr<std::string>> SummedReader::Read(
    const std::string& name) const {
  const auto sum = sums_.find(name);
  if (sum == sums_.end()) return Damaged(name, "SHA256SUMS has no such file");
  auto content = ReadWhole(PathOf(name));
  if (!content.ok()) return Damaged(name, content.status().ToString());
  const std::string sha256 = Sha256Hex(**content);
  if (sha256 != sum->second) {
    return Damaged(name, absl::StrCat("its SHA-256 is ", sha256,
                                      ", SHA256SUMS says ", sum->second));
  }
  return content;
}

absl::StatusOr<TensorMap> SummedReader::ReadTensors(
    const std::string& name) const {
  ASSIGN_OR_RETURN(auto file, Read(name));
  auto tensors = ReadSafetensors(std::move(file));
  if (!tensors.ok()) {
    return Damaged(name, std::string(tensors.status().message()));
  }
  return tensors;
}

absl::Status SummedReader::Damaged(const std::string& name,
                                   const std::string& how) const {
  return absl::DataLossError(
      absl::StrCat(what_, " ", PathOf(name), " is damaged: ", how, remedy_));
}

std::string SummedReader::PathOf(const std::string& name) const {
  return absl::StrCat(folder_, "/", name);
}

}  // namespace flotilla
