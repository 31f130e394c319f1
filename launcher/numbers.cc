#include "launcher/numbers.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace flotilla {

std::string WithCommas(int64_t number) {
  const std::string digits = absl::StrCat(number);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    const size_t left = digits.size() - i;
    if (left % 3 == 0 && i > 0 && digits[i - 1] != '-') text += ',';
    text += digits[i];
  }
  return text;
}

std::string Brief(double number) {
  const double size = std::abs(number);
  if (size < 1000) return absl::StrFormat("%.0f", number);
  if (size < 999950) return absl::StrFormat("%.1fk", number / 1e3);
  if (size < 999995e3) return absl::StrFormat("%.2fM", number / 1e6);
  return absl::StrFormat("%.2fG", number / 1e9);
}

std::string BriefSeconds(double seconds) {
  const int64_t s = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  if (s < 60) return absl::StrFormat("%ds", s);
  if (s < 3600) return absl::StrFormat("%dm%02ds", s / 60, s % 60);
  if (s < 86400) return absl::StrFormat("%dh%02dm", s / 3600, s / 60 % 60);
  return absl::StrFormat("%dd%02dh", s / 86400, s / 3600 % 24);
}

}  // namespace flotilla
