package plan

const goldenPermutation = "[8 9 6 1 0 2 3 5 7 4]"

var goldenOrders = [4]uint64{0xe555f5a7354e9c64, 0xd0cdd10e9b6a2862, 0x758ffb273f86bd2a, 0x1fd2d3515d6965d6}

const goldenStep, goldenLong = uint64(0xb82c7c25194a525d), uint64(0x676331592f673042)

const goldenMix = uint64(0x3548ad2d40f95a64)
