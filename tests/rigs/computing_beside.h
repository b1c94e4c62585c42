/* Computing beside copies, by stepping: what tests of plans hold them against. */
#ifndef SY_TESTS_RIGS_COMPUTING_BESIDE_H
#define SY_TESTS_RIGS_COMPUTING_BESIDE_H

/* When `busy` ns of computing that begin at `now` are over, if up to `moving` the part `lost` of the time is lost to copies. */
static inline double computing_beside(double now, double busy, double moving, double lost)
{
    if (now < moving) {
        double room = (moving - now) * (1 - lost);
        if (busy <= room)
            return now + busy / (1 - lost);
        busy -= room;
        now = moving;
    }
    return now + busy;
}

#endif
