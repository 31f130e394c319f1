#ifndef FLOTILLA_SERVICES_RPC_ACCEPTOR_H_
#define FLOTILLA_SERVICES_RPC_ACCEPTOR_H_

#include <sys/epoll.h>
#include <sys/types.h>

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/base/owned_fd.h"
#include "services/rpc/listener.h"

namespace flotilla {

// How many connections an Acceptor holds. Descriptors are what they cost.
struct AcceptorLimits {
  int descriptors;  // one with this number, or above, is too many
  int silent;       // connections that have not spoken yet
  int per_host;     // connections that have, from one host
  absl::Duration patience = absl::Seconds(5);  // with a silent one

  // Of a process that may have `limit` descriptors: some stay for its own use,
  // and no host gets more than half.
  static AcceptorLimits Of(int limit);
};

// Accepts a server's connections, instead of gRPC 1.51, whose own listener ends
// for good when descriptors run out (CVE-2023-4785). Hands over who has spoken;
// who is silent costs one descriptor of a few, for some seconds:
//
//   kernel's queue --> silent --> take(fd): as soon as it has said 24 bytes,
//                        |        HTTP/2's preface or the begin of a TLS hello
//                        '------> closed: after `patience`, or, when there are
//                                 too many, the oldest of the host that has
//                                 most, so that nobody keeps others out
//
// A host is an IPv4 address, an IPv6 network of 64 bits, or, on a unix socket,
// a user. Nothing that clients do ends the acceptor: where even the descriptor
// to accept with is missing, one kept in reserve serves to turn them away.
//
// Thread-safe.
class Acceptor {
 public:
  // Gets connections, on the acceptor's thread, with the socket they came from;
  // `fd` is its to close.
  using Take = std::function<void(int fd, int listener)>;

  // Errors: kResourceExhausted, ... if the system has no descriptors for it.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Start(
      Listener listener, const AcceptorLimits& limits, Take take);

  // Closes the listener and who has not spoken. Blocks until `take` runs no
  // more.
  ~Acceptor();

 private:
  struct Silent {
    OwnedFd fd;
    int listener;
    std::string host;
    absl::Time until;
  };
  using SilentList = std::list<Silent>;

  // One that was handed over. It is gone when its descriptor is another
  // connection's, or nobody's.
  struct Taken {
    ino_t number;
    std::string host;
  };

  Acceptor(Listener listener, const AcceptorLimits& limits, Take take)
      : listener_(std::move(listener)),
        limits_(limits),
        take_(std::move(take)) {}

  absl::Status Prepare();
  void Run();
  void AcceptFrom(int listener);
  void Admit(OwnedFd fd, int listener);
  bool LookAtSilent();
  bool LookAt(const epoll_event* events, int count);
  bool Look(SilentList::iterator connection, bool over);
  void HandOver(SilentList::iterator connection);
  void Drop(SilentList::iterator connection);
  void DropOne();
  void DropOverdue();
  bool TakesMoreFrom(const std::string& host);
  void TurnAwayOne(int listener);
  void CountOut(std::map<std::string, int>* counts, const std::string& host);

  const Listener listener_;
  const AcceptorLimits limits_;
  const Take take_;

  OwnedFd epoll_;
  OwnedFd quit_;     // an eventfd
  OwnedFd reserve_;  // to be closed when there is none left to accept with

  // The thread's own.
  SilentList silent_;  // the oldest first
  absl::flat_hash_map<int, SilentList::iterator> silent_by_fd_;
  std::map<std::string, int> silent_of_;  // by host
  absl::flat_hash_map<int, Taken> taken_by_fd_;
  std::map<std::string, int> taken_of_;  // by host; some may be gone
  absl::Time recounted_ = absl::InfinitePast();

  std::thread thread_;  // last: it uses the rest
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_RPC_ACCEPTOR_H_
