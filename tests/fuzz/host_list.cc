// launcher/host_list.h: any text.

#include "launcher/host_list.h"

#include <glog/logging.h>

#include "absl/strings/match.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string list(reinterpret_cast<const char*>(data), size);
  const auto hosts = flotilla::ParseHostList(list);
  if (!hosts.ok()) {
    CHECK(absl::IsInvalidArgument(hosts.status())) << hosts.status();
    CHECK(absl::StrContains(hosts.status().message(), "host list"));
    return 0;
  }
  CHECK(!hosts->empty());
  for (const std::string& host : *hosts) {
    CHECK(!host.empty());
    CHECK_EQ(host.find_first_of("[],"), host.npos) << host;
    // A plain name is a list of itself.
    const auto again = flotilla::ParseHostList(host);
    CHECK(again.ok()) << again.status();
    CHECK(*again == std::vector<std::string>{host});
    if (&host - hosts->data() > 64) break;
  }
  return 0;
}
