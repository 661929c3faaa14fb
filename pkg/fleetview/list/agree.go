package list

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
)

// agree leaves out the members whose items are of another kind than those of most. Else one
// that answers with another kind than it was asked for could have all others left out, by
// being the first.
func (l *listing) agree(answers []*memberList) {
	kinds := make([]metav1.TypeMeta, len(answers))
	for i, p := range answers {
		kinds[i] = p.itemKind()
	}
	most := merge.Majority(kinds, func(of metav1.TypeMeta) int {
		if l.plausible(of.APIVersion, of.Kind) {
			return 1
		}
		return 0
	})
	if l.form.As == "" && most.Kind != "" && !l.Likely(most) {
		of := l.KindOf()
		l.lister.kinds.Put(of, most, int64(len(of)))
	}
	for i, p := range answers {
		if kind := kinds[i]; kind.Kind != "" && kind != most {
			p.Failure = fault.Of(p.Member.Name(), &brokenError{fmt.Errorf("its items are %s of %q and not %s of %q", kind.Kind, kind.APIVersion, most.Kind, most.APIVersion)})
		}
	}
}

// itemKind is what the items of a list are; empty if it is empty. Only those of custom
// resources say it: their lists do so behind them, and may have any name.
func (p *memberList) itemKind() metav1.TypeMeta {
	if p.Failure != nil || p.reader == nil || p.firstErr != nil || p.reader.Columns() != nil {
		return metav1.TypeMeta{}
	}
	if key, err := merge.KeyOfItem(p.first); err == nil && key.Kind != "" {
		return metav1.TypeMeta{APIVersion: key.APIVersion, Kind: key.Kind}
	}
	of, err := merge.ItemsOf(p.reader.Meta())
	if err != nil {
		return metav1.TypeMeta{}
	}
	return of
}

// plausible reports whether a kind is likely to be the one that the request is for.
func (l *listing) plausible(apiVersion, kind string) bool {
	if l.form.As != "" {
		return kind == strings.TrimSuffix(l.form.As, "List")
	}
	return l.Likely(metav1.TypeMeta{APIVersion: apiVersion, Kind: kind})
}

// typed notes what a member's list is, or says why it does not fit to the others. Empty
// lists that came before are believed only if they are likely.
func (p *page) typed(of merge.ListMeta) error {
	plausible := func(list merge.ListMeta) bool {
		return p.l.plausible(list.APIVersion, strings.TrimSuffix(list.Kind, "List"))
	}
	empty := p.items == p.wholeItems
	switch {
	case p.meta.Kind == "", p.wholeItems == 0 && p.l.first && !plausible(p.meta) && (!empty || plausible(of)):
		p.meta = of
	case of.Kind != p.meta.Kind || of.APIVersion != p.meta.APIVersion:
		return fmt.Errorf("it is a %s of %q and not a %s of %q", of.Kind, of.APIVersion, p.meta.Kind, p.meta.APIVersion)
	}
	return nil
}

// Expected returns what reports whether a kind is likely to be that of a request's objects:
// by its name, or because the user's list was of it.
func (s *Lister) Expected(q *request.Request) func(of metav1.TypeMeta) bool {
	listed, ok := s.kinds.Get(q.KindOf())
	return func(of metav1.TypeMeta) bool { return q.Likely(of) || ok && of == listed }
}
