package cuda

// GemmPlans are the plans of a call of Gemm with each tile, with splits blocks for each where K is long enough.
func GemmPlans(c Call, splits int) ([]*Plan, error) {
	g, err := newGemm(c)
	if err != nil {
		return nil, err
	}
	var plans []*Plan
	tiles, _ := g.tiles()
	for _, t := range tiles {
		slabs := ceil(g.k, t.bk)
		k, work := g.tiledKernel(t, ceil(slabs, ceil(slabs, splits)))
		plans = append(plans, &Plan{Kernels: []Kernel{k}, Workspace: work})
	}
	return plans, nil
}
