#include "learner/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "learner/device/host.h"
#include "services/base/json.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

constexpr std::pair<torch::Dtype, const char*> kDtypes[] = {
    {torch::kFloat32, "F32"}, {torch::kFloat64, "F64"},
    {torch::kInt64, "I64"},   {torch::kInt32, "I32"},
    {torch::kInt16, "I16"},   {torch::kInt8, "I8"},
    {torch::kUInt8, "U8"},    {torch::kBool, "BOOL"},
    {torch::kFloat16, "F16"}, {torch::kBFloat16, "BF16"},
};

const char* WordFor(torch::Dtype dtype) {
  for (const auto& [known, word] : kDtypes) {
    if (known == dtype) return word;
  }
  return nullptr;
}

std::optional<torch::Dtype> DtypeOf(const std::string& word) {
  for (const auto& [known, its_word] : kDtypes) {
    if (word == its_word) return known;
  }
  return std::nullopt;
}

absl::StatusOr<std::string> Header(const TensorMap& tensors) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  size_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const char* dtype = WordFor(tensor.scalar_type());
    if (dtype == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor \"", name, "\" is ", c10::toString(tensor.scalar_type()),
          ", which safetensors cannot hold"));
    }
    const size_t end = offset + tensor.nbytes();
    header[name] = {{"dtype", dtype},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string json = FormatJson(header);
  // Data starts aligned.
  json.resize((json.size() + 7) / 8 * 8, ' ');
  return json;
}

absl::Status Corrupt(const std::string& what) {
  return absl::DataLossError(absl::StrCat("not in safetensors format: ", what));
}

// The numbers of the list `name`; nullopt unless it is one.
std::optional<std::vector<int64_t>> Integers(const nlohmann::json& fields,
                                             const std::string& name) {
  constexpr uint64_t kMost = 1'000'000'000'000'000;
  const auto found = fields.find(name);
  if (found == fields.end() || !found->is_array()) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const nlohmann::json& value : *found) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > kMost) {
      return std::nullopt;
    }
    numbers.push_back(value.get<int64_t>());
  }
  return numbers;
}

// A tensor, and which bytes of the data are its own.
struct Placed {
  torch::Tensor tensor;
  int64_t begin = 0, end = 0;
};

// The tensor that `fields` describe, in the data that begins at `data_begin`.
absl::StatusOr<Placed> View(const std::string& name,
                            const nlohmann::json& fields,
                            const std::shared_ptr<std::string>& file,
                            size_t data_begin) {
  const auto word = fields.find("dtype");
  const auto shape = Integers(fields, "shape");
  const auto offsets = Integers(fields, "data_offsets");
  if (word == fields.end() || !word->is_string() || !shape.has_value() ||
      !offsets.has_value() || offsets->size() != 2) {
    return Corrupt(absl::StrCat("tensor \"", name, "\" is not described"));
  }
  const auto dtype = DtypeOf(word->get<std::string>());
  if (!dtype.has_value()) {
    return Corrupt(absl::StrCat("tensor \"", name, "\" has dtype \"",
                                word->get<std::string>(), "\""));
  }
  int64_t bytes = static_cast<int64_t>(c10::elementSize(*dtype));
  const int64_t size = static_cast<int64_t>(file->size() - data_begin);
  for (const int64_t dimension : *shape) {
    if (dimension > 0 && bytes > size / dimension) {
      return Corrupt(absl::StrCat("tensor \"", name, "\" is too large"));
    }
    bytes *= dimension;
  }
  const auto [begin, end] = std::pair((*offsets)[0], (*offsets)[1]);
  if (begin > end || end > size || end - begin != bytes) {
    return Corrupt(absl::StrCat("tensor \"", name, "\" lies in bytes [", begin,
                                ", ", end, ") of ", size, " and needs ",
                                bytes));
  }
  char* const data = file->data() + data_begin + begin;
  if (reinterpret_cast<uintptr_t>(data) % c10::elementSize(*dtype) != 0) {
    // A neighbour of another size put it there; Torch wants it aligned.
    torch::Tensor copy = torch::empty(*shape, *dtype);
    std::memcpy(HostBytes(copy), data, bytes);
    return Placed{copy, begin, end};
  }
  return Placed{torch::from_blob(
                    data, *shape, [file](void*) {}, *dtype),
                begin, end};
}

// Whether every one of `size` bytes is one tensor's: the format has neither
// overlaps nor holes. Two tensors in one place would train as one.
absl::Status CheckPlaces(const std::map<std::string, Placed>& tensors,
                         int64_t size) {
  std::vector<std::pair<std::string, const Placed*>> by_place;
  for (const auto& [name, placed] : tensors) {
    by_place.push_back({name, &placed});
  }
  std::sort(by_place.begin(), by_place.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second->begin, a.second->end) <
           std::tie(b.second->begin, b.second->end);
  });
  int64_t end = 0;
  std::string before = "the header";
  for (const auto& [name, placed] : by_place) {
    if (placed->begin < end) {
      return Corrupt(absl::StrCat("tensor \"", name, "\" begins at byte ",
                                  placed->begin, ", inside ", before,
                                  ", which ends at ", end));
    }
    if (placed->begin > end) break;
    end = placed->end;
    before = absl::StrCat("tensor \"", name, "\"");
  }
  if (end == size) return absl::OkStatus();
  return Corrupt(absl::StrCat("the bytes after ", end, " of ", size,
                              ", behind ", before, ", are no tensor's"));
}

}  // namespace

absl::Status WriteSafetensors(const TensorMap& tensors, const ByteSink& sink) {
  ASSIGN_OR_RETURN(const std::string header, Header(tensors));
  const uint64_t length = header.size();
  RETURN_IF_ERROR(sink(&length, kLengthBytes));
  RETURN_IF_ERROR(sink(header.data(), header.size()));
  for (const auto& [name, tensor] : tensors) {
    const torch::Tensor host = tensor.detach().to(torch::kCPU).contiguous();
    RETURN_IF_ERROR(sink(HostBytes(host), host.nbytes()));
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorMap> ReadSafetensors(std::shared_ptr<std::string> file) {
  uint64_t length = 0;
  if (file->size() < kLengthBytes) return Corrupt("no header");
  std::memcpy(&length, file->data(), kLengthBytes);
  if (length > kMaxHeaderBytes || length > file->size() - kLengthBytes) {
    return Corrupt(absl::StrCat("a header of ", length, " bytes in a file of ",
                                file->size()));
  }
  // Not our Json, which takes quadratic time over a stranger's million names.
  const char* const begin = file->data() + kLengthBytes;
  const auto header = nlohmann::json::parse(begin, begin + length, nullptr,
                                            /*allow_exceptions=*/false);
  if (!header.is_object()) return Corrupt("the header is no JSON object");
  std::map<std::string, Placed> placed;
  for (const auto& [name, description] : header.items()) {
    if (name == "__metadata__") continue;
    ASSIGN_OR_RETURN(placed[name],
                     View(name, description, file, kLengthBytes + length));
  }
  RETURN_IF_ERROR(CheckPlaces(placed, file->size() - kLengthBytes - length));
  TensorMap tensors;
  for (const auto& [name, place] : placed) tensors[name] = place.tensor;
  return tensors;
}

}  // namespace flotilla
