/* An accelerator for a PyTorch that has none: under CUDA's name, with streams that are a time at which they are idle. What is launched takes as long as is said.
 * For the hook's counting of what is in flight (workers/torch/torch_flight.hh), which goes through PyTorch's table for accelerators alone. */
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace
{

double now_ms()
{
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

std::atomic<double> idle_at; /* ms */
std::atomic<double> most_in_flight;
std::atomic<int> n_drains;

struct guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override
    {
        return c10::DeviceType::CUDA;
    }
    c10::Device exchangeDevice(c10::Device) const override
    {
        return getDevice();
    }
    c10::Device getDevice() const override
    {
        return c10::Device(type(), 0);
    }
    void setDevice(c10::Device) const override
    {
    }
    void uncheckedSetDevice(c10::Device) const noexcept override
    {
    }
    c10::Stream getStream(c10::Device device) const override
    {
        return c10::Stream(c10::Stream::DEFAULT, device);
    }
    c10::Stream exchangeStream(c10::Stream stream) const override
    {
        return stream;
    }
    c10::DeviceIndex deviceCount() const noexcept override
    {
        return 1;
    }
    void record(void **event, const c10::Stream &, const c10::DeviceIndex,
                const c10::EventFlag) const override
    {
        if (!*event)
            *event = new double;
        *static_cast<double *>(*event) = std::max(now_ms(), idle_at.load());
    }
    bool queryEvent(void *event) const override
    {
        return now_ms() >= *static_cast<double *>(event);
    }
    double elapsedTime(void *first, void *second, const c10::DeviceIndex) const override
    {
        TORCH_CHECK(queryEvent(first) && queryEvent(second), "not ready"); /* as CUDA's */
        return *static_cast<double *>(second) - *static_cast<double *>(first);
    }
    void synchronizeDevice(const c10::DeviceIndex) const override
    {
        while (now_ms() < idle_at)
            std::this_thread::yield();
        n_drains++;
    }
};

c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::CUDA, new guard);

} // namespace

extern "C" {

/* One thread. */
void fake_launch(double ms)
{
    double now = now_ms(), idle = idle_at;
    most_in_flight = std::max(most_in_flight.load(), idle - now);
    idle_at = std::max(now, idle) + ms;
}

/* What was in flight in front of a launch, at most, since the last call. */
double fake_most_in_flight()
{
    return most_in_flight.exchange(0);
}

double fake_in_flight()
{
    return std::max(0.0, idle_at - now_ms());
}

int fake_n_drains()
{
    return n_drains;
}
}
