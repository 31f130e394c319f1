#include "launcher/doctor.h"

#include <netdb.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/vfs.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/coordinator_calls.h"
#include "launcher/env_check.h"
#include "launcher/programs.h"
#include "launcher/topology.h"
#include "services/base/cores.h"
#include "services/base/gpus.h"
#include "services/base/host_name.h"
#include "services/base/run_folder.h"
#include "services/base/scratch_folder.h"
#include "services/base/subprocess.h"
#include "services/base/version.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;
using State = Finding::State;

constexpr absl::Duration kProbeTimeout = absl::Seconds(30);

double GigaBytes(double bytes) { return bytes / (1 << 30); }

Finding Machine() {
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                        static_cast<double>(sysconf(_SC_PAGESIZE));
  const int cores = static_cast<int>(UsableCores().size());
  std::string quota;
  if (CoresToFill() < cores) {
    quota = absl::StrFormat(", of which a quota leaves the time of %.3g",
                            *CpuQuota());
  }
  return {State::kGood, "machine",
          absl::StrFormat("%d cores%s, %.0f GiB of memory", cores, quota,
                          GigaBytes(memory)),
          ""};
}

Finding Program(const std::string& name) {
  const auto path = FindProgram(name);
  if (!path.ok()) return {State::kBad, name, "is not built", MendCommand()};
  return {State::kGood, name, *path, ""};
}

// The loader finds LibTorch, and its CUDA libraries, when the program starts.
Finding LibTorch() {
  const auto path = FindProgram("flotilla-learner");
  if (!path.ok()) {
    return {State::kBad, "LibTorch", "no learner to load it", MendCommand()};
  }
  const ScratchFolder scratch;
  if (!scratch.status().ok()) {
    return {State::kBad, "LibTorch", std::string(scratch.status().message()),
            ""};
  }
  const auto learner = Subprocess::Start(
      {.argv = {*path, "--help"}, .log_path = scratch.path() + "/log"});
  const auto exit =
      learner.ok() ? (*learner)->Wait(kProbeTimeout) : std::nullopt;
  if (exit && exit->signal == 0 && exit->code < 126) {
    return {State::kGood, "LibTorch", "loads", ""};
  }
  return {State::kBad, "LibTorch",
          absl::StrCat("the learner cannot load it (",
                       exit ? exit->ToString() : "no end", ")"),
          MendCommand()};
}

Finding Gpus() {
  const GpuSurvey survey = SurveyGpus();
  if (survey.gpus.empty()) {
    return {State::kNote, "GPUs",
            absl::StrCat("none: ", survey.problem, "; training uses the CPU"),
            survey.remedy};
  }
  std::map<std::string, int> kinds;
  for (const Gpu& gpu : survey.gpus) {
    ++kinds[absl::StrFormat("%s, %.0f GiB", gpu.name,
                            GigaBytes(static_cast<double>(gpu.memory_bytes)))];
  }
  std::vector<std::string> words;
  for (const auto& [kind, count] : kinds) {
    words.push_back(absl::StrCat(count, " x ", kind));
  }
  return {
      State::kGood, "GPUs",
      absl::StrCat(absl::StrJoin(words, "; "), " (driver ", survey.driver, ")"),
      ""};
}

std::vector<Finding> Environments() {
  const auto known = AskEnvServer("", v1::EnvOptions(), kProbeTimeout);
  if (!known.ok()) {
    return {{State::kBad, "environments", std::string(known.status().message()),
             MendCommand()}};
  }
  const auto games = std::count_if(
      known->env_id().begin(), known->env_id().end(),
      [](const std::string& id) { return absl::StartsWith(id, "ALE/"); });
  std::vector<Finding> findings = {
      {State::kGood, "environments",
       absl::StrCat(known->env_id_size() - games, " native"), ""}};
  if (games > 0) {
    findings.push_back({State::kGood, "Atari",
                        absl::StrCat(games, " games with their ROMs"), ""});
  } else {
    findings.push_back({State::kNote, "Atari", "no emulator (it is GPL-2.0)",
                        "flotilla install atari"});
  }
  const auto gym =
      AskEnvServer("gym:CartPole-v1", v1::EnvOptions(), kProbeTimeout);
  if (gym.ok()) {
    findings.push_back(
        {State::kGood, "Gymnasium", "gym: environments work", ""});
  } else {
    // The server's words end with what to run.
    const std::vector<std::string> words =
        absl::StrSplit(gym.status().message(), absl::MaxSplits("; run: ", 1));
    findings.push_back({State::kNote, "Gymnasium", words.front(),
                        words.size() > 1 ? words.back() : ""});
  }
  return findings;
}

Finding DefaultPort() {
  const std::string address = absl::StrCat("127.0.0.1:", kDefaultPort);
  if (!SomethingListens(address)) {
    return {State::kGood, "port", absl::StrCat(kDefaultPort, " is free"), ""};
  }
  const auto calls = CoordinatorCalls::Make(address, {});
  const bool ours = calls.ok() && (*calls)->GetStatus(absl::Seconds(2)).ok();
  return {State::kNote, "port",
          absl::StrCat(kDefaultPort, " is taken by ",
                       ours ? "a Flotilla run" : "something else",
                       "; a run on this machine will take another one"),
          ""};
}

// Workers hand observations over through sealed memory.
Finding SharedMemory() {
  const int fd =
      memfd_create("flotilla-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) {
    return {State::kNote, "shared memory",
            "memfd_create does not work here: observations travel inline",
            "--set env.shared_memory=false"};
  }
  close(fd);
  return {State::kGood, "shared memory", "memfd works", ""};
}

Finding OpenFiles() {
  constexpr rlim_t kEnough = 1024;
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const bool enough = limit.rlim_cur >= kEnough;
  return {enough ? State::kGood : State::kNote, "open files",
          absl::StrCat("limit ", limit.rlim_cur),
          enough ? "" : absl::StrCat("ulimit -n ", kEnough)};
}

// Debian maps the host's own name to 127.0.1.1, where other hosts find nobody.
Finding ResolvedHostName() {
  const std::string name = HostName();
  addrinfo hints = {};
  hints.ai_family = AF_INET;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) {
    return {State::kNote, "host name",
            absl::StrCat(name,
                         " does not resolve: name --coordinator by "
                         "address in a job of several nodes"),
            ""};
  }
  char address[64] = "";
  getnameinfo(found->ai_addr, found->ai_addrlen, address, sizeof(address),
              nullptr, 0, NI_NUMERICHOST);
  freeaddrinfo(found);
  const bool loopback = absl::StartsWith(address, "127.");
  return {loopback ? State::kNote : State::kGood, "host name",
          absl::StrCat(name, " is ", address,
                       loopback ? ": other hosts need its real address in "
                                  "--coordinator"
                                : ""),
          ""};
}

bool IsShared(long type) {
  // NFS, Lustre, GPFS, SMB (two), Ceph, BeeGFS, 9p, FUSE.
  constexpr uint32_t kShared[] = {0x6969,     0x0BD00BD0, 0x47504653,
                                  0xFF534D42, 0xFE534D42, 0x00C36400,
                                  0x19830326, 0x01021997, 0x65735546};
  return std::count(std::begin(kShared), std::end(kShared),
                    static_cast<uint32_t>(type)) > 0;
}

Finding RunStorage(const std::string& run_dir) {
  // A new run's folder may not be there yet; what it will lie in is.
  fs::path folder = fs::absolute(run_dir);
  std::error_code error;
  while (!fs::exists(folder, error) && folder.has_relative_path()) {
    folder = folder.parent_path();
  }
  struct statfs info = {};
  if (statfs(folder.c_str(), &info) != 0 ||
      !RunFolder(run_dir).MayBeMade().ok()) {
    return {State::kBad, "run folder",
            absl::StrCat(folder.string(), " cannot be written"),
            "choose another --run-dir"};
  }
  const double free_bytes =
      static_cast<double>(info.f_bavail) * static_cast<double>(info.f_bsize);
  const std::string space =
      absl::StrFormat("%.1f GiB free", GigaBytes(free_bytes));
  if (IsShared(info.f_type)) {
    return {State::kGood, "run folder",
            absl::StrCat(folder.string(), " is on shared storage, ", space),
            ""};
  }
  return {State::kNote, "run folder",
          absl::StrCat(folder.string(), " is on a disk of this host, ", space,
                       ": fine for one machine; several nodes need storage "
                       "that all of them see"),
          ""};
}

Finding Coordinator(const DoctorOptions& options) {
  const auto calls =
      CoordinatorCalls::Make(*options.coordinator, options.credentials);
  const auto status = calls.ok() ? (*calls)->GetStatus(absl::Seconds(5))
                                 : absl::StatusOr<v1::Status>(calls.status());
  if (!status.ok()) {
    return {State::kBad, "coordinator", std::string(status.status().message()),
            ""};
  }
  if (status->version() != Version()) {
    return {
        State::kBad, "coordinator",
        absl::StrCat("is version ", status->version(), ", this is ", Version()),
        "install the same version everywhere"};
  }
  return {State::kGood, "coordinator",
          absl::StrCat(*options.coordinator, " answers, world of ",
                       status->world_size()),
          ""};
}

const char* Mark(State state) {
  switch (state) {
    case State::kGood:
      return "ok  ";
    case State::kNote:
      return "note";
    case State::kBad:
      return "BAD ";
  }
  return "";
}

}  // namespace

std::vector<Finding> Examine(const DoctorOptions& options) {
  std::vector<Finding> findings = {{State::kGood, "Flotilla", Version(), ""},
                                   Machine(),
                                   Program("flotilla-coordinator"),
                                   Program("flotilla-envserver"),
                                   Program("flotilla-learner"),
                                   LibTorch(),
                                   Gpus()};
  const std::vector<Finding> environments = Environments();
  findings.insert(findings.end(), environments.begin(), environments.end());
  findings.push_back(SharedMemory());
  findings.push_back(DefaultPort());
  findings.push_back(OpenFiles());
  findings.push_back(ResolvedHostName());
  if (options.run_dir) findings.push_back(RunStorage(*options.run_dir));
  if (options.coordinator) findings.push_back(Coordinator(options));
  return findings;
}

std::string Describe(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    absl::StrAppendFormat(&text, "%s  %-21s %s\n", Mark(finding.state),
                          finding.name, finding.what);
    if (!finding.remedy.empty()) {
      absl::StrAppendFormat(&text, "%27s mend: %s\n", "", finding.remedy);
    }
  }
  return text;
}

}  // namespace flotilla
