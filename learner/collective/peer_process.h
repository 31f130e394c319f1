#ifndef FLOTILLA_LEARNER_COLLECTIVE_PEER_PROCESS_H_
#define FLOTILLA_LEARNER_COLLECTIVE_PEER_PROCESS_H_

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"

namespace flotilla {

// Another process of this host, watched through a pidfd: unlike its number,
// that cannot come to mean somebody else.
//
// Thread-safe, but for moving.
class PeerProcess {
 public:
  // Errors: kNotFound if there is no such process (here: in this PID
  // namespace); kUnimplemented where the kernel has no pidfd.
  static absl::StatusOr<PeerProcess> Open(pid_t pid);

  ~PeerProcess();
  PeerProcess(PeerProcess&& other) noexcept;
  PeerProcess& operator=(PeerProcess&& other) noexcept;

  // Whether it has ended, by exit or signal. Never blocks.
  bool Ended() const;

  // "process 17, which runs", "process 17, which is stopped", "process 17,
  // which has ended": what an operator wants to know about a peer that is
  // missing.
  std::string Describe() const;

 private:
  PeerProcess(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}

  pid_t pid_;
  int pidfd_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_COLLECTIVE_PEER_PROCESS_H_
