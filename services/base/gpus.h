#ifndef FLOTILLA_SERVICES_BASE_GPUS_H_
#define FLOTILLA_SERVICES_BASE_GPUS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace flotilla {

struct Gpu {
  std::string name;
  std::string uuid;
  uint64_t memory_bytes = 0;
  int compute_capability = 0;  // 80: sm_80; 0: not known
  // Of a divided GPU (MIG), which then stands for the first of them: how many
  // instances it has. Unset: the GPU is whole.
  std::optional<int> instances = {};
};

struct GpuSurvey {
  std::vector<Gpu> gpus;  // that a CUDA program of ours would see
  std::string driver;     // version; "" without one
  std::string problem;    // why there are none, in words; "" if there are some
  std::string remedy;     // what mends that; "" where nothing of ours does
};

struct GpuUse {
  std::optional<double> percent =
      {};  // of the last sample period in which it worked
  std::optional<uint64_t> memory_bytes = {};  // taken, by all processes
};

// What NVIDIA's driver answers; a test makes one up. Not thread-safe.
class GpuDriver {
 public:
  virtual ~GpuDriver() = default;

  // Why it cannot be asked, in words; "" if it can. The others then matter.
  virtual std::string Problem() = 0;
  virtual std::string Version() = 0;
  virtual std::vector<Gpu> Gpus() = 0;  // by PCI address
  // Without what it does not tell: of a MIG instance, no percentage.
  virtual GpuUse Use(const std::string& uuid) = 0;
};

// The one of this host, asked through NVML, opened at run time, so that nothing
// of ours needs CUDA to count GPUs.
std::unique_ptr<GpuDriver> OpenGpuDriver();

// The GPUs that a program would see that runs with this CUDA_VISIBLE_DEVICES;
// nullopt: it is not set.
GpuSurvey SurveyGpus(GpuDriver* driver,
                     const std::optional<std::string>& visible_devices);

// What of `survey` a build can use: all of it, or where it was not `built_for_gpus`
// nothing, and why.
GpuSurvey Usable(GpuSurvey survey, bool built_for_gpus);

// Those that this process sees and this build (FLOTILLA_CUDA) can use.
GpuSurvey SurveyGpus();

// What of `gpus` a value of CUDA_VISIBLE_DEVICES leaves visible: indices and UUIDs
// (or their beginnings), up to the first that does not exist. Where an instance of
// a divided GPU is among them it is the only one: CUDA enumerates one, and no
// whole GPU beside it (NVIDIA's MIG user guide, "CUDA Device Enumeration").
std::vector<Gpu> VisibleGpus(const std::vector<Gpu>& gpus,
                             const std::string& visible_devices);

// What the `index`-th of `gpus` is busy with; nothing where there is none.
GpuUse MeasureGpu(GpuDriver* driver, const std::vector<Gpu>& gpus, int index);

// What the `index`-th GPU that this process sees is busy with; nothing where the
// driver does not say. Keeps the driver open from the first call on.
// Thread-safe.
GpuUse MeasureGpu(int index);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_GPUS_H_
