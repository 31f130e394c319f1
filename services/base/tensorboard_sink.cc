#include "services/base/tensorboard_sink.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/base/host_name.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

// CRC-32C (Castagnoli), as TFRecord wants it.
uint32_t Crc32c(const char* data, size_t size) {
  static constexpr auto kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) {
        c = (c >> 1) ^ ((c & 1) != 0 ? 0x82f63b78u : 0);
      }
      table[i] = c;
    }
    return table;
  }();
  uint32_t crc = ~0u;
  for (size_t i = 0; i < size; ++i) {
    crc = kTable[(crc ^ static_cast<uint8_t>(data[i])) & 0xff] ^ (crc >> 8);
  }
  return ~crc;
}

// A CRC over data that holds CRCs is weak, hence TFRecord's mask.
uint32_t MaskedCrc32c(const char* data, size_t size) {
  const uint32_t crc = Crc32c(data, size);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

// Protobuf's wire format, the parts in use here. Fixed-width numbers are
// little-endian, as this machine is.
template <typename T>
void AppendFixed(T value, std::string* out) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out->append(bytes, sizeof(T));
}

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) {
    out->push_back(static_cast<char>(value | 0x80));
  }
  out->push_back(static_cast<char>(value));
}

enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void AppendTag(int field, WireType type, std::string* out) {
  AppendVarint(static_cast<uint64_t>(field) << 3 | type, out);
}

void AppendBytes(int field, const std::string& bytes, std::string* out) {
  AppendTag(field, kBytes, out);
  AppendVarint(bytes.size(), out);
  out->append(bytes);
}

// message Event { double wall_time = 1; int64 step = 2; oneof { string
//   file_version = 3; Summary summary = 5; SessionLog session_log = 7; } }
std::string Event(int64_t step, int field, const std::string& content) {
  std::string event;
  AppendTag(1, kFixed64, &event);
  AppendFixed(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()), &event);
  AppendTag(2, kVarint, &event);
  AppendVarint(static_cast<uint64_t>(step), &event);
  AppendBytes(field, content, &event);
  return event;
}

// message Summary { repeated Value value = 1; }
// message Value { string tag = 1; float simple_value = 2; }
std::string Summary(std::span<const Metric> metrics) {
  std::string summary;
  for (const Metric& metric : metrics) {
    std::string value;
    AppendBytes(1, metric.name, &value);
    AppendTag(2, kFixed32, &value);
    AppendFixed(static_cast<float>(metric.value), &value);
    AppendBytes(1, value, &summary);
  }
  return summary;
}

// message SessionLog { SessionStatus status = 1; }  START = 1
std::string SessionStart() {
  std::string session_log;
  AppendTag(1, kVarint, &session_log);
  AppendVarint(1, &session_log);
  return session_log;
}

// One TFRecord.
std::string Record(const std::string& event) {
  std::string record;
  AppendFixed<uint64_t>(event.size(), &record);
  AppendFixed(MaskedCrc32c(record.data(), record.size()), &record);
  record.append(event);
  AppendFixed(MaskedCrc32c(event.data(), event.size()), &record);
  return record;
}

// TensorBoard reads files in the order of their names and wants "tfevents" in
// them; O_EXCL in Open makes the name ours.
std::string FileName(int attempt) {
  return absl::StrFormat("events.out.tfevents.%010d.%s.%d.%d",
                         absl::ToUnixSeconds(absl::Now()), HostName(),
                         ::getpid(), attempt);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorboardSink>> TensorboardSink::Open(
    const std::string& directory, std::optional<int64_t> resume_step) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(),
                               absl::StrCat("cannot make ", directory));
  }
  absl::StatusOr<std::unique_ptr<AppendFile>> file;
  int attempt = 0;
  do {
    file = AppendFile::Open(absl::StrCat(directory, "/", FileName(attempt++)),
                            O_EXCL);
  } while (absl::IsAlreadyExists(file.status()));
  RETURN_IF_ERROR(file.status());
  (*file)->Append(Record(Event(0, 3, "brain.Event:2")));
  if (resume_step.has_value()) {
    // Purges steps at and after its own.
    (*file)->Append(Record(Event(*resume_step + 1, 7, SessionStart())));
  }
  return std::unique_ptr<TensorboardSink>(
      new TensorboardSink(*std::move(file)));
}

void TensorboardSink::Write(int64_t global_step, int64_t /*update*/,
                            double /*wall_seconds*/,
                            std::span<const Metric> metrics) {
  const std::string record = Record(Event(global_step, 5, Summary(metrics)));
  MutexLock lock(&mu_);
  file_->Append(record);
}

}  // namespace flotilla
