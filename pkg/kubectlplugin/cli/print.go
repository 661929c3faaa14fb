package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/printers"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
)

// jsonPath begins the format that has a template, as kubectl's.
const jsonPath = "jsonpath="

// OutputFlag is the format of a command's output besides text, as kubectl's: JSON, YAML and
// JSONPath, and the named ones. Another is refused before anything is asked.
func OutputFlag(cmd *cobra.Command, output *string, formats ...string) {
	formats = append(formats, "json", "yaml", jsonPath)
	allowed := strings.Join(formats[:len(formats)-1], ", ") + " or " + jsonPath + "TEMPLATE"
	cmd.Flags().StringVarP(output, "output", "o", "", "format: "+allowed+" instead of text")
	if err := cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is two lines above
	}
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if strings.HasPrefix(*output, jsonPath) {
			_, err := printerOf(*output)
			return err
		}
		if *output != "" && !slices.Contains(formats, *output) {
			return fmt.Errorf("--output is %q: it must be %s", *output, allowed)
		}
		return nil
	}
}

// printerOf returns the printer of a format, or nil for text.
func printerOf(output string) (printers.ResourcePrinter, error) {
	switch output {
	case "json":
		return &printers.JSONPrinter{}, nil
	case "yaml":
		return &printers.YAMLPrinter{}, nil
	case "name":
		return &printers.NamePrinter{}, nil
	}
	template, ok := strings.CutPrefix(output, jsonPath)
	if !ok {
		return nil, nil
	}
	printer, err := printers.NewJSONPathPrinter(template)
	if err != nil {
		return nil, fmt.Errorf("parsing the template of --output=%s: %w", output, err)
	}
	return printer, nil
}

// Print writes an object in a format. It reports false, and writes nothing, if text was asked for.
func (p *Factory) Print(output string, object any) (bool, error) {
	printer, err := printerOf(output)
	if printer == nil || err != nil {
		return false, err
	}
	text, err := json.Marshal(object)
	if err != nil {
		return true, err
	}
	// Not all kinds that are printed here are in a scheme.
	var printed unstructured.Unstructured
	if err := json.Unmarshal(text, &printed.Object); err != nil {
		return true, err
	}
	if output == "name" {
		list, err := printed.ToList()
		if err != nil {
			return true, err
		}
		return true, printer.PrintObj(list, p.Out)
	}
	return true, printer.PrintObj(&printed, p.Out)
}

// ListOf is the list of what is no object of the hub.
func ListOf(kind string, items any) any {
	return struct {
		metav1.TypeMeta `json:",inline"`
		Items           any `json:"items"`
	}{metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind}, items}
}

// Table is one that kubectl's printer writes. Its wide columns are shown on demand.
type Table struct{ metav1.Table }

// NewTable returns a table without rows.
func NewTable(columns ...string) *Table {
	t := &Table{}
	for _, name := range columns {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: name})
	}
	return t
}

// AddWide adds columns that are shown on demand.
func (t *Table) AddWide(columns ...string) {
	for _, name := range columns {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Priority: 1})
	}
}

// Add adds a row. No text of a cell can end the cell.
func (t *Table) Add(cells ...string) {
	row := metav1.TableRow{}
	for _, cell := range cells {
		row.Cells = append(row.Cells, OneLine(cmp.Or(cell, "<none>")))
	}
	t.Rows = append(t.Rows, row)
}

// PrintTable writes a table with its header.
func (p *Factory) PrintTable(t *Table, wide bool) error {
	return printers.NewTablePrinter(printers.PrintOptions{Wide: wide}).PrintObj(&t.Table, p.Out)
}
