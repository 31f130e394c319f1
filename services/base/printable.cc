#include "services/base/printable.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace flotilla {
namespace {

// Bytes of the UTF-8 character that `text` begins with: 0 if it is none, or one
// that controls a terminal or the direction of writing.
size_t CharacterBytes(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return 0;
  uint32_t code = first & (0x7f >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < least[size] || code > 0x10ffff || surrogate) return 0;
  const bool c1 = code >= 0x80 && code < 0xa0;
  const bool separator = code == 0x2028 || code == 0x2029;
  const bool direction =
      (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  return c1 || separator || direction ? 0 : size;
}

std::string Printable(absl::string_view text, size_t most, bool one_line) {
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    const char c = text[at];
    std::string next;
    size_t taken = 1;
    if (one_line && absl::ascii_isspace(static_cast<unsigned char>(c))) {
      while (
          at + taken < text.size() &&
          absl::ascii_isspace(static_cast<unsigned char>(text[at + taken]))) {
        ++taken;
      }
      if (!out.empty() && at + taken < text.size()) next = " ";
    } else if (c == '\n' || c == '\t') {
      next = c;
    } else if (const size_t size = CharacterBytes(text.substr(at)); size > 0) {
      next = std::string(text.substr(at, size));
      taken = size;
    } else {
      next = absl::StrFormat("\\x%02x", static_cast<uint8_t>(c));
    }
    if (out.size() + next.size() > most) {
      return absl::StrCat(out, "... (", text.size(), " bytes in all)");
    }
    out += next;
    at += taken;
  }
  return out;
}

}  // namespace

std::string PrintableLine(absl::string_view text, size_t most) {
  return Printable(text, most, /*one_line=*/true);
}

std::string PrintableText(absl::string_view text, size_t most) {
  return Printable(text, most, /*one_line=*/false);
}

}  // namespace flotilla
