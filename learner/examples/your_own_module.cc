// Your own torch::nn::Module and loop on several processes: REINFORCE (Williams
// 1992) on CartPole-v1, on each rank an episode of a length of its own.
//   build/bin/flotilla-coordinator --min_learners 2 --insecure --address_file address &
//   for r in 0 1; do build/bin/flotilla-example $(cat address) $r 2 & done
#include <cstdio>
#include <cstdlib>

#include "learner/actor/env_pool.h"
#include "learner/library/data_parallel.h"
#include "learner/library/world.h"

using namespace flotilla;
int main(int argc, char** argv) {
  if (argc != 4) return std::fputs("usage: COORDINATOR RANK RANKS\n", stderr);
  const int rank = std::atoi(argv[2]);
  WorldOptions options{.coordinator = argv[1], .rank = rank};
  options.local_rank = rank;  // all on one host
  options.local_world_size = std::atoi(argv[3]);
  const std::unique_ptr<World> world = World::Join(options).value();
  torch::manual_seed(rank);  // the same again, each rank exploring by itself
  torch::nn::Sequential net(torch::nn::Linear(4, 32), torch::nn::Tanh(),
                            torch::nn::Linear(32, 2));
  torch::optim::Adam adam(net->parameters(), 1e-2);
  auto parallel = DataParallel::Wrap(net.get(), world->collective()).value();

  EnvWorkerOptions worker;  // an env server of this rank's own
  worker.env.set_num_envs(1);
  worker.env.set_groups(1);
  const auto envs = EnvPool::Start(worker, rank, /*incarnation=*/1).value();
  const auto observe = [&] {
    envs->Receive(0, {}).value();
    void* bytes = const_cast<char*>(envs->Observation(0, 0).data());
    return torch::from_blob(bytes, {1, 4}).clone();
  };
  torch::Tensor seen = observe();
  const int episodes = 100 + 20 * rank;  // of uneven number too: nobody hangs
  int64_t steps = 0;
  for (int e = 0; world->AnyRank(e < episodes).value(); ++e) {
    std::vector<torch::Tensor> log_prob;
    for (bool ended = e >= episodes; !ended;) {
      const torch::Tensor log_policy = log_softmax(net->forward(seen)[0], 0);
      const int64_t action = log_policy.exp().multinomial(1).item<int64_t>();
      log_prob.push_back(log_policy[action]);
      const std::string sent(reinterpret_cast<const char*>(&action), 8);
      envs->Send(0, {&sent, 1});
      seen = observe();
      ended = envs->batch(0).terminated()[0] || envs->batch(0).truncated()[0];
    }
    adam.zero_grad();
    if (const double n = log_prob.size(); n > 0) {
      const torch::Tensor left = torch::arange(n, 0, -1) / n - 0.5;
      (-torch::stack(log_prob) * left).mean().backward();
      steps += log_prob.size();
    }
    if (!parallel.AverageGradients(log_prob.size()).ok()) return 1;
    adam.step();
  }
  std::printf("rank %d: %.1f steps an episode, %.2f ms an all-reduce\n", rank,
              1.0 * steps / episodes, 1e3 * parallel.traffic().MeanSeconds());
}
