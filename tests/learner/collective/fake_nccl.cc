#include "tests/learner/collective/fake_nccl.h"

#include <cstring>
#include <functional>

#include "glog/logging.h"

namespace flotilla {

struct NcclComm {
  std::string id;
  int rank = 0;
  int world_size = 0;
  int64_t calls = 0;
  int busy = 0;  // how often `state` is still in progress
};

struct NcclEvent {
  std::string id;
  int64_t call = 0;
  std::shared_ptr<void> mark;  // of a device
};

namespace {

FakeNccl* fake = nullptr;  // of the test that runs

size_t BytesOf(NcclElement element) {
  return element == NcclElement::kFloat32 ? 4
         : element == NcclElement::kByte  ? 1
                                          : 8;
}

}  // namespace

struct FakeNcclCalls {
  using Round = FakeNccl::Round;

  static char* Host(const void* address) {
    return static_cast<char*>(fake->device_ == nullptr
                                  ? const_cast<void*>(address)
                                  : fake->device_->Host(address));
  }

  // This rank's part of its next call, which `finish` does when all are there.
  static int Call(NcclComm* comm, const char* name, void* stream,
                  const FakeNcclDevice::Memory& send,
                  const FakeNcclDevice::Memory& receive,
                  const std::function<void(Round*)>& finish) {
    if (fake->device_ != nullptr) {
      fake->device_->Launch(name, stream, send, receive);
    }
    std::lock_guard lock(fake->mu_);
    Round& round = fake->rounds_[comm->id][++comm->calls];
    round.part[comm->rank] = {Host(send.address), Host(receive.address)};
    comm->busy = fake->call_busy;
    if (static_cast<int>(round.part.size()) == comm->world_size &&
        !fake->broken_.contains(comm->id)) {
      finish(&round);
      round.done = true;
    }
    return comm->busy > 0 || Waits(*comm) ? kNcclInProgress : kNcclOk;
  }

  // With mu_ held.
  static bool Waits(const NcclComm& comm) {
    return fake->calls_wait && comm.calls > 0 &&
           !fake->rounds_[comm.id][comm.calls].done;
  }

  template <typename T>
  static void AddUp(Round* round, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      T sum = 0;
      for (const auto& [rank, part] : round->part) {
        sum += reinterpret_cast<const T*>(part.send)[i];
      }
      for (const auto& [rank, part] : round->part) {
        reinterpret_cast<T*>(part.receive)[i] = sum;
      }
    }
  }

  static int AllReduceSum(NcclComm* comm, void* data, size_t count,
                          NcclElement element, void* stream) {
    const FakeNcclDevice::Memory all = {data, count * BytesOf(element)};
    return Call(comm, "all-reduce", stream, all, all, [&](Round* round) {
      if (element == NcclElement::kFloat32) AddUp<float>(round, count);
      if (element == NcclElement::kFloat64) AddUp<double>(round, count);
      if (element == NcclElement::kInt64) AddUp<int64_t>(round, count);
    });
  }

  static int Broadcast(NcclComm* comm, void* data, size_t bytes, int root,
                       void* stream) {
    const FakeNcclDevice::Memory all = {data, bytes};
    return Call(comm, "broadcast", stream, all, all, [&](Round* round) {
      for (const auto& [rank, part] : round->part) {
        if (rank == root) continue;
        std::memcpy(part.receive, round->part[root].send, bytes);
      }
    });
  }

  // Rank r's part q goes to rank q's part r; of a gather there is one part.
  static int Exchange(NcclComm* comm, const char* name, const void* send,
                      void* receive, size_t bytes, bool gather, void* stream) {
    const size_t all = bytes * comm->world_size;
    return Call(comm, name, stream, {send, gather ? bytes : all},
                {receive, all}, [&](Round* round) {
                  for (const auto& [to, mine] : round->part) {
                    for (const auto& [from, theirs] : round->part) {
                      std::memcpy(mine.receive + from * bytes,
                                  theirs.send + (gather ? 0 : to * bytes),
                                  bytes);
                    }
                  }
                });
  }
  static int AllToAll(NcclComm* comm, const void* send, void* receive,
                      size_t bytes, void* stream) {
    return Exchange(comm, "all-to-all", send, receive, bytes, false, stream);
  }
  static int AllGather(NcclComm* comm, const void* send, void* receive,
                       size_t bytes, void* stream) {
    return Exchange(comm, "all-gather", send, receive, bytes, true, stream);
  }

  static int MakeId(char id[kNcclIdBytes]) {
    std::memset(id, 'a' + ++fake->ids, kNcclIdBytes);
    return kNcclOk;
  }
  static int Init(NcclComm** comm, int world_size, const char id[kNcclIdBytes],
                  int rank, int) {
    if (fake->init_error != 0) return fake->init_error;
    *comm = new NcclComm{std::string(id, kNcclIdBytes), rank, world_size, 0,
                         fake->init_busy};
    return (*comm)->busy > 0 ? kNcclInProgress : kNcclOk;
  }
  static int State(NcclComm* comm) {
    if (fake->async_error != 0) return fake->async_error;
    if (comm->busy > 0) {
      --comm->busy;
      return kNcclInProgress;
    }
    std::lock_guard lock(fake->mu_);
    return Waits(*comm) ? kNcclInProgress : kNcclOk;
  }
  static int Finalize(NcclComm* comm) {
    if (fake->finalize_error != 0) return fake->finalize_error;
    comm->busy = fake->finalize_busy;
    return comm->busy > 0 ? kNcclInProgress : kNcclOk;
  }
  static int Destroy(NcclComm* comm) {
    ++fake->destroys;
    delete comm;
    return kNcclOk;
  }
  static int Abort(NcclComm* comm) {
    {
      // What its rank gave may be gone from now on.
      std::lock_guard lock(fake->mu_);
      fake->broken_.insert(comm->id);
    }
    ++fake->aborts;
    fake->aborts.notify_all();
    fake->abort_hangs.wait(true);
    delete comm;
    return kNcclOk;
  }
  static const char* Describe(NcclComm*, int) { return "the fake says so"; }

  static int Record(NcclComm* comm, void* stream, NcclEvent** event) {
    *event = new NcclEvent{comm->id, comm->calls, nullptr};
    if (fake->device_ != nullptr) {
      (*event)->mark = fake->device_->Record(stream);
    }
    return kNcclOk;
  }
  static int Query(NcclEvent* event) {
    if (fake->never_over) return kNcclInProgress;
    if (fake->query_busy > 0 && fake->query_busy-- > 0) return kNcclInProgress;
    {
      std::lock_guard lock(fake->mu_);
      if (!fake->rounds_[event->id][event->call].done) return kNcclInProgress;
    }
    if (fake->device_ != nullptr) fake->device_->Reach(event->mark);
    return kNcclOk;
  }
  static void Release(NcclEvent* event) { delete event; }
};

FakeNccl::FakeNccl(const FakeNcclDevice* device) : device_(device) {
  CHECK(fake == nullptr) << "there is one at a time";
  fake = this;
  api_ = {.version = 22809,
          .abort_patience_ms = 20'000,
          .make_id = FakeNcclCalls::MakeId,
          .init = FakeNcclCalls::Init,
          .state = FakeNcclCalls::State,
          .all_reduce_sum = FakeNcclCalls::AllReduceSum,
          .all_to_all = FakeNcclCalls::AllToAll,
          .all_gather = FakeNcclCalls::AllGather,
          .broadcast = FakeNcclCalls::Broadcast,
          .finalize = FakeNcclCalls::Finalize,
          .destroy = FakeNcclCalls::Destroy,
          .abort = FakeNcclCalls::Abort,
          .describe = FakeNcclCalls::Describe,
          .record = FakeNcclCalls::Record,
          .query = FakeNcclCalls::Query,
          .release = FakeNcclCalls::Release};
}

FakeNccl::~FakeNccl() { fake = nullptr; }

}  // namespace flotilla
